//! Which types may cross or share threads. This file compiles only while each answer holds.

use nixl::{Agent, Backend, DescList, HostMemory, Registration, Remote, RemoteDescList, Transfer};

/// Compiles only if the type lacks the trait: with it, two implementations apply and the call is ambiguous.
macro_rules! assert_not {
    ($trait:path: $($type:ty),*) => {$(
        const _: fn() = || {
            trait Ambiguous<Marker> {
                fn call() {}
            }
            struct Has;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $trait> Ambiguous<Has> for T {}
            let _ = <$type as Ambiguous<_>>::call;
        };
    )*};
}

assert_not!(Sync: Agent, Backend<'_>, Registration<'_>, Remote<'_>, DescList<'_>, RemoteDescList<'_>, Transfer<'_>);
assert_not!(Send: Backend<'_>, Registration<'_>, Remote<'_>, DescList<'_>, RemoteDescList<'_>, Transfer<'_>);

const _: fn() = || {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Agent>();
    send::<HostMemory>();
    sync::<HostMemory>();
    send::<nixl::Error>();
    sync::<nixl_sys::Library>();
};
