//! The table of functions that a NIXL library offers.
//!
//! A *required* function is a plain function pointer: a library without it is refused. An *optional* one is an
//! `Option`, which is the only way to know what a version can do, because NIXL has no version call.

use std::ffi::CStr;

use crate::bindings::*;

/// The function inside a nullable C function pointer. Public only because the fields of [`Functions`] are.
pub trait Nullable {
    /// The function pointer that is not null.
    type Function;
}

impl<F> Nullable for Option<F> {
    type Function = F;
}

/// Finds one symbol of an opened library.
pub(crate) trait Symbols {
    /// The address of the symbol as the nullable function pointer `T`, or `None` where it is missing.
    ///
    /// # Safety
    /// `T` must be the C type of that symbol, as a nullable function pointer.
    unsafe fn get<T: Copy>(&self, name: &'static CStr) -> Option<T>;
}

macro_rules! table {
    (
        required { $($(#[$required_doc:meta])* $required:ident: $required_type:ident = $required_name:literal,)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_type:ident = $optional_name:literal,)* }
    ) => {
        /// NIXL's C functions, resolved from one library.
        ///
        /// A field `x` is the exported function `nixl_capi_x`; `include/nixl_capi.h` says what each one does. They
        /// are `unsafe` to call: handles must be live, belong to the agent passed beside them, and an agent must be
        /// used by one thread at a time.
        #[derive(Debug, Clone, Copy)]
        #[non_exhaustive]
        pub struct Functions {
            $($(#[$required_doc])* pub $required: <$required_type as Nullable>::Function,)*
            $($(#[$optional_doc])* pub $optional: $optional_type,)*
        }

        impl Functions {
            /// Names of the functions without which a library is refused.
            pub const REQUIRED: &'static [&'static CStr] = &[$($required_name,)*];
            /// Names of the functions that are used where a library has them.
            pub const OPTIONAL: &'static [&'static CStr] = &[$($optional_name,)*];

            /// Resolves every function, or names the first required one that is missing.
            ///
            /// # Safety
            /// The symbols must come from a library whose functions have the signatures of NIXL's C API.
            pub(crate) unsafe fn resolve(symbols: &impl Symbols) -> Result<Self, &'static CStr> {
                // SAFETY: each name is looked up with its own type, by the macro's pairing of the two; the caller
                // vouches for the library.
                unsafe {
                    Ok(Self {
                        $($required: symbols
                            .get::<$required_type>($required_name)
                            .flatten()
                            .ok_or($required_name)?,)*
                        $($optional: symbols.get::<$optional_type>($optional_name).flatten(),)*
                    })
                }
            }
        }
    };
}

table! {
    required {
        create_configured_agent: nixl_capi_create_configured_agent_fn = c"nixl_capi_create_configured_agent",
        destroy_agent: nixl_capi_destroy_agent_fn = c"nixl_capi_destroy_agent",
        get_local_md: nixl_capi_get_local_md_fn = c"nixl_capi_get_local_md",
        load_remote_md: nixl_capi_load_remote_md_fn = c"nixl_capi_load_remote_md",
        invalidate_remote_md: nixl_capi_invalidate_remote_md_fn = c"nixl_capi_invalidate_remote_md",
        get_available_plugins: nixl_capi_get_available_plugins_fn = c"nixl_capi_get_available_plugins",
        string_list_size: nixl_capi_string_list_size_fn = c"nixl_capi_string_list_size",
        string_list_get: nixl_capi_string_list_get_fn = c"nixl_capi_string_list_get",
        destroy_string_list: nixl_capi_destroy_string_list_fn = c"nixl_capi_destroy_string_list",
        get_plugin_params: nixl_capi_get_plugin_params_fn = c"nixl_capi_get_plugin_params",
        mem_list_size: nixl_capi_mem_list_size_fn = c"nixl_capi_mem_list_size",
        mem_list_get: nixl_capi_mem_list_get_fn = c"nixl_capi_mem_list_get",
        destroy_mem_list: nixl_capi_destroy_mem_list_fn = c"nixl_capi_destroy_mem_list",
        create_params: nixl_capi_create_params_fn = c"nixl_capi_create_params",
        params_add: nixl_capi_params_add_fn = c"nixl_capi_params_add",
        destroy_params: nixl_capi_destroy_params_fn = c"nixl_capi_destroy_params",
        params_create_iterator: nixl_capi_params_create_iterator_fn = c"nixl_capi_params_create_iterator",
        params_iterator_next: nixl_capi_params_iterator_next_fn = c"nixl_capi_params_iterator_next",
        params_destroy_iterator: nixl_capi_params_destroy_iterator_fn = c"nixl_capi_params_destroy_iterator",
        create_backend: nixl_capi_create_backend_fn = c"nixl_capi_create_backend",
        destroy_backend: nixl_capi_destroy_backend_fn = c"nixl_capi_destroy_backend",
        create_opt_args: nixl_capi_create_opt_args_fn = c"nixl_capi_create_opt_args",
        destroy_opt_args: nixl_capi_destroy_opt_args_fn = c"nixl_capi_destroy_opt_args",
        opt_args_add_backend: nixl_capi_opt_args_add_backend_fn = c"nixl_capi_opt_args_add_backend",
        opt_args_set_notif_msg: nixl_capi_opt_args_set_notif_msg_fn = c"nixl_capi_opt_args_set_notif_msg",
        opt_args_set_has_notif: nixl_capi_opt_args_set_has_notif_fn = c"nixl_capi_opt_args_set_has_notif",
        opt_args_set_skip_desc_merge: nixl_capi_opt_args_set_skip_desc_merge_fn
            = c"nixl_capi_opt_args_set_skip_desc_merge",
        create_reg_dlist: nixl_capi_create_reg_dlist_fn = c"nixl_capi_create_reg_dlist",
        reg_dlist_add_desc: nixl_capi_reg_dlist_add_desc_fn = c"nixl_capi_reg_dlist_add_desc",
        destroy_reg_dlist: nixl_capi_destroy_reg_dlist_fn = c"nixl_capi_destroy_reg_dlist",
        register_mem: nixl_capi_register_mem_fn = c"nixl_capi_register_mem",
        deregister_mem: nixl_capi_deregister_mem_fn = c"nixl_capi_deregister_mem",
        create_xfer_dlist: nixl_capi_create_xfer_dlist_fn = c"nixl_capi_create_xfer_dlist",
        xfer_dlist_add_desc: nixl_capi_xfer_dlist_add_desc_fn = c"nixl_capi_xfer_dlist_add_desc",
        destroy_xfer_dlist: nixl_capi_destroy_xfer_dlist_fn = c"nixl_capi_destroy_xfer_dlist",
        prep_xfer_dlist: nixl_capi_prep_xfer_dlist_fn = c"nixl_capi_prep_xfer_dlist",
        release_xfer_dlist_handle: nixl_capi_release_xfer_dlist_handle_fn = c"nixl_capi_release_xfer_dlist_handle",
        make_xfer_req: nixl_capi_make_xfer_req_fn = c"nixl_capi_make_xfer_req",
        post_xfer_req: nixl_capi_post_xfer_req_fn = c"nixl_capi_post_xfer_req",
        get_xfer_status: nixl_capi_get_xfer_status_fn = c"nixl_capi_get_xfer_status",
        release_xfer_req: nixl_capi_release_xfer_req_fn = c"nixl_capi_release_xfer_req",
        destroy_xfer_req: nixl_capi_destroy_xfer_req_fn = c"nixl_capi_destroy_xfer_req",
        create_notif_map: nixl_capi_create_notif_map_fn = c"nixl_capi_create_notif_map",
        destroy_notif_map: nixl_capi_destroy_notif_map_fn = c"nixl_capi_destroy_notif_map",
        get_notifs: nixl_capi_get_notifs_fn = c"nixl_capi_get_notifs",
        notif_map_size: nixl_capi_notif_map_size_fn = c"nixl_capi_notif_map_size",
        notif_map_get_agent_at: nixl_capi_notif_map_get_agent_at_fn = c"nixl_capi_notif_map_get_agent_at",
        notif_map_get_notifs_size: nixl_capi_notif_map_get_notifs_size_fn = c"nixl_capi_notif_map_get_notifs_size",
        notif_map_get_notif: nixl_capi_notif_map_get_notif_fn = c"nixl_capi_notif_map_get_notif",
        gen_notif: nixl_capi_gen_notif_fn = c"nixl_capi_gen_notif",
    }
    optional {
        get_xfer_telemetry: nixl_capi_get_xfer_telemetry_fn = c"nixl_capi_get_xfer_telemetry",
        query_xfer_backend: nixl_capi_query_xfer_backend_fn = c"nixl_capi_query_xfer_backend",
        estimate_xfer_cost: nixl_capi_estimate_xfer_cost_fn = c"nixl_capi_estimate_xfer_cost",
        get_local_partial_md: nixl_capi_get_local_partial_md_fn = c"nixl_capi_get_local_partial_md",
        check_remote_md: nixl_capi_check_remote_md_fn = c"nixl_capi_check_remote_md",
        agent_make_connection: nixl_capi_agent_make_connection_fn = c"nixl_capi_agent_make_connection",
        get_backend_params: nixl_capi_get_backend_params_fn = c"nixl_capi_get_backend_params",
        is_stub: nixl_capi_is_stub_fn = c"nixl_capi_is_stub",
    }
}

#[cfg(test)]
mod tests {
    use super::Functions;

    #[test]
    fn every_function_of_the_header_is_in_the_table_once() {
        let header = include_str!("../include/nixl_capi.h");
        let mut declared: Vec<&str> = header
            .match_indices("(*nixl_capi_")
            .filter_map(|(at, _)| header[at + 2..].split_once("_fn)").map(|(name, _)| name))
            .collect();
        let mut listed: Vec<&str> = Functions::REQUIRED
            .iter()
            .chain(Functions::OPTIONAL)
            .map(|name| name.to_str().unwrap())
            .collect();
        declared.sort_unstable();
        listed.sort_unstable();
        assert!(declared.len() > 50, "the header was not understood: {declared:?}");
        assert_eq!(declared, listed);
    }
}
