//! The conformance suite against real servers, which `tests/test_homes.py` starts.
//!
//! `EYAS_TEST_HOME` names a location below which the suite may do as it likes. Without it there is nothing to test.

use eyas_storage::{Homes, HomesConfig, Location, conformance};

#[test]
fn conformance_of_a_real_home() {
    let Ok(text) = std::env::var("EYAS_TEST_HOME") else { return };
    let base: Location = text.parse().unwrap();
    let homes = Homes::new(HomesConfig::default()).unwrap();
    match std::env::var_os("EYAS_TEST_NO_LINE_BREAKS") {
        Some(_) => conformance::run_without_line_breaks(&**homes.get(&base), &base),
        None => conformance::run(&**homes.get(&base), &base),
    }
}
