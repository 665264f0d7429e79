//! Output on a terminal, and output on a pipe.

use crate::needs_far;
use crate::testbed::{SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// Content of a terminal, as far as a progress display needs it.
struct Screen {
    width: usize,
    rows: Vec<String>,
    row: usize,
    column: usize,
}

impl Screen {
    /// Replays the output that `script` recorded. Calls `frame` before each overwriting of content.
    fn show(width: usize, typescript: &str, mut frame: impl FnMut(&Self)) -> Self {
        let mut screen = Self { width, rows: vec![String::new()], row: 0, column: 0 };
        let text = typescript.split_once('\n').expect("script says that it started").1;
        let mut rest = text.split("\nScript done").next().expect("a part");
        while let Some(letter) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end =
                    sequence.find(|c: char| c.is_ascii_alphabetic()).expect("a sequence ends");
                let count = sequence[..end].parse().unwrap_or(1);
                match &sequence[end..=end] {
                    "A" => {
                        frame(&screen);
                        screen.row -= count;
                    }
                    "K" => screen.rows[screen.row] = screen.before_cursor(),
                    "J" => {
                        screen.rows[screen.row] = screen.before_cursor();
                        screen.rows.truncate(screen.row + 1);
                    }
                    other => panic!("a sequence that is not known here: {other}"),
                }
                rest = &sequence[end + 1..];
                continue;
            }
            match letter {
                '\r' => screen.column = 0,
                '\n' => screen.down(),
                letter => screen.put(letter),
            }
            rest = &rest[letter.len_utf8()..];
        }
        screen
    }

    fn before_cursor(&self) -> String {
        self.rows[self.row].chars().take(self.column).collect()
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(String::new());
        }
    }

    fn put(&mut self, letter: char) {
        if self.column == self.width {
            self.column = 0;
            self.down();
        }
        let before = self.before_cursor();
        let after: String = self.rows[self.row].chars().skip(self.column + 1).collect();
        let gap = " ".repeat(self.column - before.chars().count());
        self.rows[self.row] = format!("{before}{gap}{letter}{after}");
        self.column += 1;
    }

    fn text(&self) -> String {
        self.rows.join("\n")
    }
}

#[test]
fn a_line_for_each_network_on_a_terminal() {
    needs_far!("script");
    let testbed = Testbed::new();
    let script = "TERM=xterm both script -qec \"stty cols 100 rows 30; \
                    $GET --json https://origin.lab/object >json\" typescript >/dev/null && whole";
    testbed.run(&SLOW_LINKS, script).expect_success();
    let seen = testbed.read("typescript");
    for part in ["wifi [", "lte [", "all [", "Mbit/s"] {
        assert!(seen.contains(part), "no {part} in {seen}");
    }
    // The line of JSON is in its file and not between the bars.
    assert!(!seen.contains("manyways.get/2"), "{seen}");
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
}

#[test]
fn a_pipe_gets_json_and_nothing_else() {
    needs_far!();
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "both get --json https://origin.lab/object 2>said && get https://origin.lab/object 2>plain && \
         get -q https://origin.lab/object 2>quiet; get --json -q http://origin.lab/none 2>failed",
    );
    assert_eq!(finished.code(), 1);
    let [done, failed] = &Transfer::all(&finished.stdout)[..] else {
        panic!("{}", finished.stdout)
    };
    done.assert_paths(&["wifi", "lte"]);
    // The server is nginx.
    assert_eq!((&done.0["validator_kind"], &done.0["changed"]), (&"second".into(), &false.into()));
    assert_eq!(failed.0["error"]["message"], "the server answered 404 Not Found");
    assert_eq!(failed.0["error"]["resumable"], false);
    for file in ["said", "plain"] {
        let output = testbed.read(file);
        assert!(
            output.contains("wifi") && output.contains("lte") && !output.contains('['),
            "{output}"
        );
    }
    assert_eq!(testbed.read("quiet"), "");
    assert!(testbed.read("failed").contains("404 Not Found"), "{}", testbed.read("failed"));
}

/// At every width, no line wraps, and no bar remains on the screen.
#[test]
fn the_display_fits_a_terminal_of_any_width() {
    needs_far!("script");
    for width in [40, 63, 120] {
        let testbed = Testbed::new();
        let script = format!(
            "TERM=xterm script -qec \"stty cols {width} rows 30; \
             $GET https://origin.lab/object\" typescript >/dev/null && whole"
        );
        testbed.run(&SLOW_LINKS, &script).expect_success();
        let mut frames = 0;
        let screen = Screen::show(width, &testbed.read("typescript"), |frame| {
            let [.., wifi, lte, all] = frame.rows.as_slice() else { panic!("{}", frame.text()) };
            assert!(wifi.starts_with("wifi [") && lte.starts_with(" lte ["), "{}", frame.text());
            assert!(all.contains(" %") && all.contains("bit/s"), "{}", frame.text());
            frames += 1;
        });
        assert!(frames > 0, "{}", screen.text());
        assert!(screen.rows[0].starts_with("object: "), "{}", screen.text());
        assert!(!screen.text().contains('['), "{}", screen.text());
    }
}

#[test]
fn ctrl_c_leaves_a_clean_screen() {
    needs_far!("script");
    let testbed = Testbed::new();
    let script = "{ eventually grep -q 'all ' typescript; printf '\\003'; eventually grep -q hint typescript; } | \
         TERM=xterm script -qefc \"stty cols 90 rows 30; $GET https://origin.lab/object\" typescript \
         >/dev/null; true";
    // Slow enough that the download outlasts the interrupt, also on a loaded machine.
    testbed
        .run(&["--link", "wifi:down=1mbit", "--link", "lte:down=1mbit"], script)
        .expect_success();
    let typescript = testbed.read("typescript");
    assert!(typescript.contains("^C"), "{typescript}");
    let screen = Screen::show(90, &typescript, |_| {});
    let text = screen.text();
    assert!(!text.contains("bit/s") && !text.contains("^C"), "{text}");
    assert!(text.contains("manyways: stopped before the end"), "{text}");
    assert!(text.contains("hint: run the same command with -c"), "{text}");
}

#[test]
fn what_brings_nothing_is_waiting() {
    needs_far!("script");
    let testbed = Testbed::new();
    // Wi-Fi cannot deliver the rest before the word appears.
    let script = "stop_at wifi 300000; change --when 'lte.down_bytes >= 200KB' lte state=silent; \
         TERM=xterm script -qefc \"stty cols 90 rows 30; $GET https://origin.lab/object\" typescript \
         >/dev/null & pid=$!; \
         eventually grep -q 'lte.*waiting' typescript; go_on wifi lte; wait $pid && whole";
    testbed.run(&SLOW_LINKS, script).expect_success();
}
