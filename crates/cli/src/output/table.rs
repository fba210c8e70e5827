//! Tables of plain text: columns as wide as their widest cell, numbers to the right.

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Lays out `rows` under `head`. Every row has as many cells as the head.
pub(crate) fn layout(head: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|(name, _)| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let names: Vec<String> = head.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(&widths).zip(head) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            if !line.is_empty() {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.extend([cell.as_str(), &pad]),
                Align::Right => line.extend([pad.as_str(), cell]),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let head = [("TOPIC", Align::Left), ("PARTITIONS", Align::Right), ("PAYLOAD", Align::Left)];
        let rows = [
            vec!["flights".to_owned(), "1".to_owned(), "protobuf".to_owned()],
            vec!["flights.json".to_owned(), "12".to_owned(), String::new()],
        ];
        let expected = "\
TOPIC         PARTITIONS  PAYLOAD
flights                1  protobuf
flights.json          12
";
        assert_eq!(layout(&head, &rows), expected);
    }
}
