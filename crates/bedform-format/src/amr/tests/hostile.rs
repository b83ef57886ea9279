//! Damaged texts and impossible claims.

use super::*;
use crate::ObjectPath;
use crate::shown::is_hidden;

/// Checks the promises about a header that was read.
fn holds_header(found: &PlotfileHeader) {
    assert!((1..=3).contains(&found.rank()));
    assert!(!found.levels.is_empty() && found.levels.len() == found.domains.len());
    assert!(!found.components.is_empty());
    assert!(found.components.iter().all(|name| !name.is_empty() && !name.contains(is_hidden)));
    for (number, level) in found.levels.iter().enumerate() {
        let is_last = number + 1 == found.levels.len();
        let ratio = &level.refinement_ratio;
        assert_eq!(ratio.len(), if is_last { 0 } else { found.rank() });
        assert!(ratio.iter().all(|ratio| *ratio > 0));
        assert!(
            level.spacing.len() == found.rank() && level.spacing.iter().all(|size| *size > 0.0)
        );
        assert!(level.cell_header_path().is_ok() && level.boxes > 0);
    }
}

/// Checks the promises about a level that was read.
fn holds_cells(found: &CellHeader) {
    assert!(!found.boxes.is_empty() && found.boxes.len() == found.locations.len());
    assert_eq!(found.ghost_cells.len(), found.boxes.rank());
    assert!(found.locations.iter().all(|place| (place.file as usize) < found.files.len()));
    assert!(!found.files.iter().any(ObjectPath::is_root));
    assert_eq!(found.descriptor.is_none(), found.version == 1);
}

/// Checks that a message is one line of visible characters.
fn holds_message(error: &AmrError) {
    let text = error.to_string();
    assert!(text.len() < 500 && !text.contains(is_hidden), "{text:?}");
}

fn look(text: &[u8]) -> [bool; 3] {
    let limits = Limits::default();
    let header = PlotfileHeader::parse(text, &limits);
    header.as_ref().map_or_else(holds_message, holds_header);
    let cells = CellHeader::parse(text, &limits);
    cells.as_ref().map_or_else(holds_message, holds_cells);
    if let Ok(cells) = &cells {
        let _ = cells.component_ranges(text, 0);
    }
    let fab = FabHeader::parse(text, &limits);
    if let Err(error) = &fab {
        holds_message(error);
    }
    [header.is_ok(), cells.is_ok(), fab.is_ok()]
}

#[test]
fn a_text_cut_before_its_last_needed_line_ends_is_refused() {
    let fabs = "FabOnDisk: Cell_D_00000 1106\n";
    let version_2 = CELLS.replacen('1', "2", 1) + writer::LITTLE_F32;
    for (text, needed) in [
        (ONE_LEVEL, ONE_LEVEL.len()),
        (STALE, STALE.find("Level_1/Cell\n").unwrap() + "Level_1/Cell\n".len()),
        (CELLS, CELLS.find(fabs).unwrap() + fabs.len()),
        (&version_2, version_2.len()),
        (FAB, FAB.len()),
    ] {
        for length in 0..=text.len() {
            let is_read = look(&text.as_bytes()[..length]).contains(&true);
            assert_eq!(is_read, length >= needed, "{length} of {text:?}");
        }
    }
}

#[test]
fn any_changed_byte_gives_an_error_or_a_text_that_holds() {
    let version_4 = CELLS.replacen('1', "4", 1) + writer::LITTLE_F64;
    for text in [ONE_LEVEL, STALE, CELLS, &version_4, FAB] {
        let mut text = text.as_bytes().to_vec();
        for at in 0..text.len() {
            let before = text[at];
            for byte in 0..=255 {
                text[at] = byte;
                look(&text);
            }
            text[at] = before;
        }
    }
}

#[test]
fn removed_and_repeated_pieces_never_panic() {
    for text in [ONE_LEVEL, STALE, CELLS, FAB] {
        for start in 0..text.len() {
            for length in [1, 2, 7, 40] {
                let end = (start + length).min(text.len());
                look([&text[..start], &text[end..]].concat().as_bytes());
                look([&text[..end], &text[start..]].concat().as_bytes());
            }
        }
    }
}

/// Replaces the first `old` of a text.
fn changed(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old:?}");
    text.replacen(old, new, 1)
}

fn refused_header(old: &str, new: &str) -> String {
    header(&changed(STALE, old, new)).unwrap_err().to_string()
}

fn refused_cells(old: &str, new: &str) -> String {
    cells(&changed(CELLS, old, new)).unwrap_err().to_string()
}

fn refused_fab(old: &str, new: &str) -> String {
    fab(&changed(FAB, old, new)).unwrap_err().to_string()
}

#[test]
fn errors_in_the_lists_of_a_header_name_the_line_and_quote_the_text() {
    for (old, new, message) in [
        ("\n2\ntemp", "\nx\ntemp", "at line 2: the number of components expected, not \"x\""),
        (
            "\n2\ntemp",
            "\n0\ntemp",
            "at line 2: a positive number of components expected, not \"0\"",
        ),
        ("\n2\ntemp", "\n2.5\ntemp", "at line 2: the number of components expected, not \"2.5\""),
        ("temp", "Y(OH)", "at line 4: a second component \"Y(OH)\""),
        ("temp", " ", "at line 3: the name of a component in visible UTF-8 expected, not \"\""),
        ("temp", "t\u{202e}", "at line 3: the name of a component in visible UTF-8 expected"),
        ("\n3\n0.5", "\n4\n0.5", "at line 5: a number of axes from 1 to 3 expected, not \"4\""),
        ("\n3\n0.5", "\n2\n0.5", "at line 8: nothing after a lower bound expected, not \"0\""),
        ("\n0.5\n", "\nNaN\n", "at line 6: the time, which is finite, expected, not \"NaN\""),
        (
            "\n0.5\n",
            "\n1 \u{1b}[2J\n",
            "at line 6: nothing after the time expected, not \"\\u{1b}[2J\"",
        ),
        ("1 1 2", "1 1", "at line 9: an upper bound expected, but the line ends"),
        ("1 1 2", "1 1 inf", "at line 9: an upper bound, which is finite, expected, not \"inf\""),
        ("2 (2", "0 (2", "at line 10: a refinement ratio of 3 positive integers expected, not \"0"),
        ("2 (2", "(2,2) (2", "at line 10: a refinement ratio of 3 positive integers expected"),
        (
            "(7,7,7) (0,0,0))",
            "(7,7) (0,0,0))",
            "at line 11: a box with bounds of one rank expected",
        ),
        (
            "(7,7,7)",
            "(7,-1,7)",
            "at line 11: the domain of a level: a box from 0 to 0 along axis 1",
        ),
        ("(7,7,7)", "(7,7,2147483648)", "at line 11: a box with bounds of 32 bits expected, not"),
    ] {
        let found = refused_header(old, new);
        assert!(found.starts_with("damaged AMReX Header at line "), "{found}");
        assert!(found.contains(message), "{message}\n{found}");
    }
}

#[test]
fn errors_in_the_levels_of_a_header_name_the_line_and_quote_the_text() {
    for (old, new, message) in [
        ("10 20", "10 x", "at line 12: a step expected, not \"x 40\""),
        (
            "0.125 0.125 0.25",
            "0.125 0 0.25",
            "at line 13: the spacing of a level above zero expect",
        ),
        ("\n0\n0\n0 1", "\n3\n0\n0 1", "at line 17: a coordinate system from -1 to 2 expected"),
        ("\n1 1 0.5", "\n2 1 0.5", "at line 25: level 1 expected, not \"2 1 0.5\""),
        (
            "\n1 1 0.5",
            "\n1 0 0.5",
            "at line 25: a positive number of boxes expected, not \"0 0.5\"",
        ),
        ("\n0 nan", "\n0 nun", "at line 28: a bound of a box expected, not \"nun\""),
        ("Level_0/Cell", "/etc/passwd", "at line 24: an empty segment in the path \"/etc/passwd\""),
        ("Level_0/Cell", "Level_0/../x", "at line 24: a segment '.' or '..' in the path"),
        ("Level_0/Cell", "L\u{200b}/Cell", "a hidden character in the path \"L\\u{200b}/Cell\""),
        (
            "Level_0/Cell",
            "Level 0/Cell",
            "nothing after the path of a level expected, not \"0/Cell\"",
        ),
        (
            "HyperCLaw-V1.1",
            "Hyper CLaw",
            "at line 1: nothing after the name of the format expected",
        ),
        (
            "HyperCLaw-V1.1",
            "\u{e9}",
            "at line 1: the name of a format such as HyperCLaw-V1.1 expect",
        ),
    ] {
        let found = refused_header(old, new);
        assert!(found.starts_with("damaged AMReX Header at line "), "{found}");
        assert!(found.contains(message), "{message}\n{found}");
    }
}

#[test]
fn errors_in_boxes_and_places_name_the_line_and_quote_the_text() {
    for (old, new, message) in [
        (
            "1\n1\n2",
            "1\n1\n-2",
            "line 3: the number of components, which is not negative, expected",
        ),
        ("(1,1,0)", "(1,1)", "at line 4: ghost cells for 2 axes, but boxes with 3"),
        ("(1,1,0)", "-1", "at line 4: the number of ghost cells expected, not \"-1\""),
        ("((0,0,0)(7", "((0,0)(7", "at line 7: a box with bounds of one rank expected, not"),
        ("((0,0,0)(7,7,7)", "((0,0)(7,7)", "at line 7: rank 2 was given where rank 3 is needed"),
        (")\n2\n", ")\n3\n", "at line 9: 3 FABs for 2 boxes"),
        ("FabOnDisk: ", "FabOnDisk:", "at line 10: FabOnDisk: expected, not \"FabOnDisk:Cell_D_"),
        (
            "Cell_D_00001",
            "../Cell_D",
            "at line 10: a segment '.' or '..' in the path \"../Cell_D\"",
        ),
        (
            "0001 0\n",
            "0001 -1\n",
            "at line 10: the offset of a FAB, which is not negative, expected",
        ),
        ("0001 0\n", "0001 0 0\n", "at line 10: nothing after the offset of a FAB expected, not"),
    ] {
        let found = refused_cells(old, new);
        assert!(found.starts_with("damaged AMReX Cell_H at line "), "{found}");
        assert!(found.contains(message), "{message}\n{found}");
    }
}

#[test]
fn errors_in_the_header_of_a_fab_quote_the_text() {
    for (old, new, message) in [
        ("FAB", "FAX", "at line 1: FAB expected, not \"FAX ((8, (32 8 23 0 1 9 0 127)),(4, (..."),
        ("((8", "((9", "a count of at most 8 expected, not \"9, (32"),
        ("(4, (1 2 3 4))", "(3, (1 2 3))", "of as many bytes as the number expected"),
        ("\n", "", "no end of line in 68 bytes that start with \"FAB ((8, (32"),
        (" 3\n", " 3 4\n", "nothing after the number of components expected, not \"4\""),
    ] {
        let found = refused_fab(old, new);
        assert!(found.starts_with("damaged AMReX FAB header at line "), "{found}");
        assert!(found.contains(message), "{message}\n{found}");
    }
}

#[test]
fn data_that_are_not_read_are_unsupported_and_not_damaged() {
    let nodes = "at line 6: boxes with the centring (1,0,1); only cell-centred data are read";
    for (found, message) in [
        (refused_cells("(0,0,0))\n", "(1,0,1))\n"), nodes),
        (refused_cells("1\n1\n2", "5\n1\n2"), "at line 1: version 5; 1 to 4 are read"),
        (refused_header("(0,0,0))", "(0,1,0))"), "at line 11: boxes with the centring (0,1,0)"),
        (refused_fab("FAB ", "FAB: "), "a FAB of the old form, with \"FAB:\""),
        (refused_fab("(1 2 3 4)", "(2 1 4 3)"), "have the order [2, 1, 4, 3]; little-endian and"),
        (refused_fab("32 8", "32 7"), "numbers of the format [32, 7, 23, 0, 1, 9, 0, 127]"),
    ] {
        assert!(found.starts_with("unsupported AMReX "), "{found}");
        assert!(found.contains(message), "{message}\n{found}");
    }
    assert!(refused_cells("(0,0,0))\n", "(2,0,0))\n").contains("centrings of 0 or 1 expected"));
}

#[test]
fn counts_over_a_limit_and_over_the_text_are_refused_before_anything_is_made() {
    let over = "AMReX Header over a limit at line ";
    let many = i64::MAX.to_string();
    let huge = "9223372036854775808";
    for (old, template, message) in [
        ("\n2\ntemp", "\n#\ntemp", "components, at most 65536"),
        ("\n0.5\n1\n", "\n0.5\n#\n", "is the finest of more than 64 levels"),
        ("\n0 1 0.5", "\n0 # 0.5", "boxes, at most 16777216"),
    ] {
        let found = refused_header(old, &template.replace('#', &many));
        assert!(found.starts_with(over) && found.contains(message), "{found}");
        let found = refused_header(old, &template.replace('#', huge));
        assert!(
            found.contains("of at most 63 bits expected, not \"9223372036854775808"),
            "{found}"
        );
    }
    let found = refused_header("\n0 1 0.5", "\n0 16777216 0.5");
    assert!(found.contains("16777216 boxes, but 110 bytes of text are left"), "{found}");
    let found = refused_cells("(2 0", "(16777216 0");
    assert!(found.contains("16777216 boxes, but "), "{found}");
    let found = refused_cells("(2 0", &format!("({many} 0"));
    assert!(found.contains("AMReX Cell_H over a limit at line 5: "), "{found}");
    let found = refused_fab(" 3\n", &format!(" {many}\n"));
    assert!(found.contains("AMReX FAB header over a limit at line 1: "), "{found}");
    let most = "(-2147483648,-2147483648) (2147483647,2147483647) (0,0)";
    let found = refused_fab("(0,0) (3,1) (0,0)", most);
    assert!(found.contains("more cells than can be counted"), "{found}");
    let found = refused_fab("(0,0) (3,1) (0,0)", "(0,0) (2147483646,1073741823) (0,0)");
    assert!(found.contains("more bytes than 63 bits can count"), "{found}");
}

#[test]
fn limits_bound_texts_levels_components_and_boxes() {
    let mut limits = Limits::default().with_index_bytes_max(STALE.len() as u64);
    (limits.mesh_levels_max, limits.mesh_components_max, limits.mesh_boxes_max) = (2, 2, 2);
    let is_read = |limits: &Limits| {
        [
            PlotfileHeader::parse(STALE.as_bytes(), limits).is_ok(),
            CellHeader::parse(CELLS.as_bytes(), limits).is_ok(),
        ]
    };
    assert_eq!(is_read(&limits), [true, true]);
    assert_eq!(is_read(&Limits { mesh_levels_max: 1, ..limits.clone() }), [false, true]);
    assert_eq!(is_read(&Limits { mesh_components_max: 1, ..limits.clone() }), [false, false]);
    assert_eq!(is_read(&Limits { mesh_boxes_max: 1, ..limits.clone() }), [true, false]);
    assert_eq!(is_read(&limits.with_index_bytes_max(8)), [false, false]);
}

#[test]
fn blank_texts_and_long_lines_are_refused() {
    for text in ["", "\n", " ", "\n\n\n\n\n\n\n\n\n\n\n\n\n\n", "\0\0\0\0\n"] {
        assert_eq!(look(text.as_bytes()), [false; 3], "{text:?}");
    }
    for byte in ["(", "9", "\n9", "9 ", "-", "\u{7f}", "x", "(9,", "\u{e9}", "\u{202e}"] {
        assert_eq!(look(byte.repeat(100_000).as_bytes()), [false; 3], "{byte:?}");
    }
    let blanks = " ".repeat(100_000);
    assert!(
        header(&STALE.replace(' ', &blanks)).is_ok() && cells(&CELLS.replace(' ', &blanks)).is_ok()
    );
    assert!(fab(&FAB.replace(' ', &blanks)).unwrap_err().to_string().contains("in 1024 bytes"));
}
