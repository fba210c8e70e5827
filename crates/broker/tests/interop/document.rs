//! The table of `interop/SCENARIO.md`: which steps each client runs.

use crate::install::{Client, folder};

/// The steps that the table gives to a client, in its order.
pub fn steps_of(client: Client) -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("SCENARIO.md")).unwrap();
    let (_, table) = text.split_once("## Who runs what").unwrap();
    let mut rows = table.lines().filter(|line| line.starts_with('|')).map(cells);
    let header = rows.next().unwrap();
    let column = header.iter().position(|name| name == client.name()).unwrap();
    let steps = rows.skip(1).filter(|row| row[column].starts_with("yes")).map(|row| row[0].clone());
    steps.collect()
}

fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_table_has_steps_for_every_client() {
    for client in Client::ALL {
        let steps = steps_of(client);
        assert_eq!(steps[0], "connect", "{client:?}");
        assert!(steps.len() > 10, "{client:?}: {steps:?}");
    }
}
