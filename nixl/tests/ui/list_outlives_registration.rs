//! A descriptor list needs its registrations.

use nixl::{DescList, Registration};

fn leak<'a>(registration: Registration<'a>) -> nixl::Result<DescList<'a>> {
    registration.describe([(0, 8)])
}

fn early(registration: Registration<'_>) -> nixl::Result<()> {
    let list = registration.describe([(0, 8)])?;
    drop(registration);
    drop(list);
    Ok(())
}

fn main() {}
