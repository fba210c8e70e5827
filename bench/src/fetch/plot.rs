//! A bar for each side, as SVG.

use std::fmt::Write as _;

use super::results::Results;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 44.0;
const BAR: f64 = 18.0;
const STEP: f64 = 26.0;

/// The rates of a scenario: a bar is the median, the line on it goes from the least to the most.
pub fn bars(results: &Results) -> String {
    let most = results.rows.iter().map(|row| row.megabytes_per_second.max).fold(1e-9, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let height = TOP + STEP * results.rows.len() as f64 + 12.0;
    let title = format!("{}: MB/s, median of {} rounds", results.scenario, results.rounds);
    // Writing to a string does not fail.
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(&title)
    );
    for (place, row) in results.rows.iter().enumerate() {
        let y = TOP + STEP * place as f64;
        let rate = &row.megabytes_per_second;
        let (bar, least, end) = (rate.median * scale, LEFT + rate.min * scale, LEFT + rate.max * scale);
        let colour = if row.side.starts_with("tidegate") { "#1a7f6b" } else { "#9aa7b4" };
        let (middle, text) = (y + BAR / 2.0, y + BAR / 2.0 + 4.5);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
             <line x1=\"{least:.1}\" x2=\"{end:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#222\"/>\n\
             <text x=\"{:.1}\" y=\"{text:.1}\">{:.1}</text>\n",
            LEFT - 8.0,
            escaped(&row.side),
            end.max(LEFT + bar) + 6.0,
            rate.median
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
