//! Calibrations too short for true figures; but figures they must be.

use super::*;
use std::time::UNIX_EPOCH;

const TINY: Effort = Effort { rounds: 12, records: 2000, entries: 1024, file_bytes: 1 << 16 };

#[test]
fn a_calibration_has_a_figure_for_everything_and_its_file_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let calibration = calibrate(&TINY, directory.path()).unwrap();
    let path = directory.path().join("profile.toml");
    std::fs::write(&path, calibration.text()).unwrap();
    // Reading refuses what is no positive figure.
    assert_eq!(Calibration::read(&path).unwrap(), calibration);
    assert!(calibration.node.read_us.cpu.is_some_and(|cpu| cpu > 0.0));
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        1,
        "nothing stays but the profile"
    );
}

#[test]
fn a_directory_that_is_none_is_named() {
    let error = calibrate(&TINY, Path::new("/proc/self/exe")).unwrap_err();
    assert!(format!("{error:#}").contains("/proc/self/exe"), "{error:#}");
}

#[test]
fn dates_are_the_calendars() {
    let at = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(0), "1970-01-01T00:00:00Z");
    assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
    assert_eq!(at(1_772_323_199), "2026-02-28T23:59:59Z");
    assert_eq!(at(1_772_323_200), "2026-03-01T00:00:00Z");
}

#[test]
fn figures_have_six_digits() {
    assert_eq!(
        [1.234_567_89, 123_456_789.0, 0.000_123_456_78].map(rounded),
        [1.234_57, 123_457_000.0, 0.000_123_457]
    );
}
