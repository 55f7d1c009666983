//! Programs that break NIXL's rules do not compile.

#[test]
fn rules_of_lifetime_and_thread_are_compile_errors() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
