//! A slot process and nothing else. `eyas` runs slots by starting itself again; this small program is for
//! the tests and benchmarks of this crate.

fn main() {
    eyas_runner::slot_main(0)
}
