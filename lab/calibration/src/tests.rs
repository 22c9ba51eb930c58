//! Files round and hostile.

use super::*;

fn sample(median: f64) -> Sample {
    Sample { median, low: median * 0.9, high: median * 1.1, cpu: None }
}

fn calibration() -> Calibration {
    let origin = Origin {
        machine: "a \"machine\" with C:\\".to_owned(),
        date: "2026-11-21T14:00:00Z".to_owned(),
        commit: "0123456789ab".to_owned(),
        load: [0.5, 1.0],
        method: "groups of 32".to_owned(),
    };
    let node = Node {
        read_us: Sample { cpu: Some(7.5), ..sample(10.0) },
        write_us: sample(40.0),
        conditional_us: sample(50.0),
        read_alone_us: sample(20.0),
        write_alone_us: sample(400.0),
        mark_us: sample(41.0),
        cache_update_us: sample(0.25),
        read_byte_ns: sample(0.5),
        write_byte_ns: sample(2.0),
    };
    Calibration {
        origin,
        node,
        pipeline: Pipeline {
            read_hit_ns: sample(40.0),
            write_hit_ns: sample(60.0),
            miss_ns: sample(30.0),
        },
        link: Link { udp_us: sample(12.0), byte_ns: sample(0.1) },
        control: Control { delay_us: sample(80.0), mb_per_s: sample(500.0) },
        agent: Agent { entry_us: sample(0.4), snapshot_record_us: sample(0.3) },
        controller: Controller { file_ms: sample(3.0), mb_per_s: sample(200.0) },
        switch: Switch { start_ms: sample(8.0) },
    }
}

fn refused(text: &str) -> String {
    Calibration::parse(text, "p.toml").unwrap_err().to_string()
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let written = calibration();
    assert_eq!(Calibration::parse(&written.text(), "p.toml").unwrap(), written);
    // (Experiments are tested with the same file.)
    assert_eq!(include_str!("example.profile"), written.text());
}

#[test]
fn a_hostile_file_is_told_where_and_what_would_be_right() {
    let good = calibration().text();
    let line_of = |key: &str| good.lines().position(|line| line.starts_with(key)).unwrap() + 1;
    let with = |key: &str, line: &str| {
        let old = good.lines().find(|line| line.starts_with(key)).unwrap();
        good.replacen(old, line, 1)
    };
    for (key, line, expected) in [
        ("read_us", "read_us = { median = -1.0, low = -2.0, high = 3.0 }", "more than 0"),
        ("read_us", "read_us = { median = nan, low = 1.0, high = 3.0 }", "more than 0"),
        ("read_us", "read_us = { median = inf, low = 1.0, high = inf }", "more than 0"),
        ("read_us", "read_us = { median = 1.0, low = 1.0, high = 1e300 }", "more than 0"),
        ("read_us", "read_us = { median = 1.0, low = 1.0, high = 1e7 }", "at most 1000000"),
        ("write_us", "write_us = { median = 5.0, low = 6.0, high = 7.0 }", "not between"),
        ("write_us", "write_us = { median = 5.0, low = 4.0 }", "missing field `high`"),
        ("udp_us", "udp_us = \"fast\"", "invalid type"),
        ("udp_us", "udp_microseconds = 3", "udp_us"),
    ] {
        let error = refused(&with(key, line));
        assert!(error.starts_with(&format!("p.toml:{}:", line_of(key))), "{line}: {error}");
        assert!(
            error.contains(expected) && error.contains("switchback lab calibrate"),
            "{line}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let cut = refused(&with("miss_ns", "miss_ns = { median = "));
    assert!(cut.starts_with("p.toml:") && cut.lines().count() == 1, "{cut}");
    let error = refused(&good.replace("[agent]", "[agents]"));
    assert!(error.contains("agent"), "{error}");
    for text in ["", "\0\0\0", "[origin]", "[[node]]\n[[node]]\n", "no = \"profile\"\n"] {
        assert!(refused(text).starts_with("p.toml"), "{text:?}");
    }
    // Cut off anywhere it is refused, or whole but for comments and white space.
    for (at, _) in good.char_indices().step_by(7) {
        if let Ok(read) = Calibration::parse(&good[..at], "p.toml") {
            assert_eq!(read, calibration());
        }
    }
}

#[test]
fn a_sample_is_the_middle_of_its_rounds() {
    let sample = Sample::of((1..=101).rev().map(f64::from).collect()).unwrap();
    assert_eq!((sample.median, sample.low, sample.high), (51.0, 11.0, 91.0));
    assert_eq!(Sample::of(Vec::new()), None);
    assert_eq!(
        [0.0451, 1.0, 12.34, 999.9, 12345.0].map(short),
        ["0.0451", "1.00", "12.3", "1000", "12345"]
    );
}
