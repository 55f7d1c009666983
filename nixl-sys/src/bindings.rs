// Generated from include/nixl_capi.h by `make bindings`. Do not edit.

/// Fingerprint of the header that this file was generated from.
pub const HEADER_FINGERPRINT: u64 = 0xeff5ff4b15985738;

pub const NIXL_CAPI_SUCCESS: i32 = 0;
pub const NIXL_CAPI_IN_PROG: i32 = 1;
pub const NIXL_CAPI_ERROR_INVALID_PARAM: i32 = -1;
pub const NIXL_CAPI_ERROR_BACKEND: i32 = -2;
pub const NIXL_CAPI_ERROR_INVALID_STATE: i32 = -3;
pub const NIXL_CAPI_ERROR_EXCEPTION: i32 = -4;
pub const NIXL_CAPI_ERROR_NO_TELEMETRY: i32 = -5;
pub const NIXL_CAPI_ERROR_NOT_FOUND: i32 = -6;
pub const NIXL_CAPI_MEM_DRAM: i32 = 0;
pub const NIXL_CAPI_MEM_VRAM: i32 = 1;
pub const NIXL_CAPI_MEM_BLOCK: i32 = 2;
pub const NIXL_CAPI_MEM_OBJECT: i32 = 3;
pub const NIXL_CAPI_MEM_FILE: i32 = 4;
pub const NIXL_CAPI_MEM_UNKNOWN: i32 = 5;
pub const NIXL_CAPI_XFER_OP_READ: i32 = 0;
pub const NIXL_CAPI_XFER_OP_WRITE: i32 = 1;
pub const NIXL_CAPI_THREAD_SYNC_NONE: i32 = 0;
pub const NIXL_CAPI_THREAD_SYNC_STRICT: i32 = 1;
pub const NIXL_CAPI_THREAD_SYNC_RW: i32 = 2;
pub type nixl_capi_status_t = i32;
pub type nixl_capi_mem_type_t = i32;
pub type nixl_capi_xfer_op_t = i32;
pub type nixl_capi_thread_sync_t = i32;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_agent_s {
    _unused: [u8; 0],
}
pub type nixl_capi_agent_t = *mut nixl_capi_agent_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_backend_s {
    _unused: [u8; 0],
}
pub type nixl_capi_backend_t = *mut nixl_capi_backend_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_string_list_s {
    _unused: [u8; 0],
}
pub type nixl_capi_string_list_t = *mut nixl_capi_string_list_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_mem_list_s {
    _unused: [u8; 0],
}
pub type nixl_capi_mem_list_t = *mut nixl_capi_mem_list_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_params_s {
    _unused: [u8; 0],
}
pub type nixl_capi_params_t = *mut nixl_capi_params_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_param_iter_s {
    _unused: [u8; 0],
}
pub type nixl_capi_param_iter_t = *mut nixl_capi_param_iter_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_opt_args_s {
    _unused: [u8; 0],
}
pub type nixl_capi_opt_args_t = *mut nixl_capi_opt_args_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_reg_dlist_s {
    _unused: [u8; 0],
}
pub type nixl_capi_reg_dlist_t = *mut nixl_capi_reg_dlist_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_xfer_dlist_s {
    _unused: [u8; 0],
}
pub type nixl_capi_xfer_dlist_t = *mut nixl_capi_xfer_dlist_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_xfer_dlist_handle_s {
    _unused: [u8; 0],
}
pub type nixl_capi_xfer_dlist_handle_t = *mut nixl_capi_xfer_dlist_handle_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_xfer_req_s {
    _unused: [u8; 0],
}
pub type nixl_capi_xfer_req_t = *mut nixl_capi_xfer_req_s;
#[repr(C)]
#[derive(Debug)]
pub struct nixl_capi_notif_map_s {
    _unused: [u8; 0],
}
pub type nixl_capi_notif_map_t = *mut nixl_capi_notif_map_s;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct nixl_capi_agent_config_s {
    pub enable_prog_thread: bool,
    pub enable_listen_thread: bool,
    pub listen_port: ::std::os::raw::c_int,
    pub thread_sync: nixl_capi_thread_sync_t,
    pub num_workers: ::std::os::raw::c_uint,
    pub pthr_delay_us: u64,
    pub lthr_delay_us: u64,
    pub capture_telemetry: bool,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nixl_capi_agent_config_s",
    ][::std::mem::size_of::<nixl_capi_agent_config_s>() - 40usize];
    [
        "Alignment of nixl_capi_agent_config_s",
    ][::std::mem::align_of::<nixl_capi_agent_config_s>() - 8usize];
    [
        "Offset of field: nixl_capi_agent_config_s::enable_prog_thread",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, enable_prog_thread) - 0usize];
    [
        "Offset of field: nixl_capi_agent_config_s::enable_listen_thread",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, enable_listen_thread) - 1usize];
    [
        "Offset of field: nixl_capi_agent_config_s::listen_port",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, listen_port) - 4usize];
    [
        "Offset of field: nixl_capi_agent_config_s::thread_sync",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, thread_sync) - 8usize];
    [
        "Offset of field: nixl_capi_agent_config_s::num_workers",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, num_workers) - 12usize];
    [
        "Offset of field: nixl_capi_agent_config_s::pthr_delay_us",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, pthr_delay_us) - 16usize];
    [
        "Offset of field: nixl_capi_agent_config_s::lthr_delay_us",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, lthr_delay_us) - 24usize];
    [
        "Offset of field: nixl_capi_agent_config_s::capture_telemetry",
    ][::std::mem::offset_of!(nixl_capi_agent_config_s, capture_telemetry) - 32usize];
};
pub type nixl_capi_agent_config_t = nixl_capi_agent_config_s;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct nixl_capi_xfer_telemetry_s {
    pub start_time_us: u64,
    pub post_duration_us: u64,
    pub xfer_duration_us: u64,
    pub total_bytes: u64,
    pub desc_count: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nixl_capi_xfer_telemetry_s",
    ][::std::mem::size_of::<nixl_capi_xfer_telemetry_s>() - 40usize];
    [
        "Alignment of nixl_capi_xfer_telemetry_s",
    ][::std::mem::align_of::<nixl_capi_xfer_telemetry_s>() - 8usize];
    [
        "Offset of field: nixl_capi_xfer_telemetry_s::start_time_us",
    ][::std::mem::offset_of!(nixl_capi_xfer_telemetry_s, start_time_us) - 0usize];
    [
        "Offset of field: nixl_capi_xfer_telemetry_s::post_duration_us",
    ][::std::mem::offset_of!(nixl_capi_xfer_telemetry_s, post_duration_us) - 8usize];
    [
        "Offset of field: nixl_capi_xfer_telemetry_s::xfer_duration_us",
    ][::std::mem::offset_of!(nixl_capi_xfer_telemetry_s, xfer_duration_us) - 16usize];
    [
        "Offset of field: nixl_capi_xfer_telemetry_s::total_bytes",
    ][::std::mem::offset_of!(nixl_capi_xfer_telemetry_s, total_bytes) - 24usize];
    [
        "Offset of field: nixl_capi_xfer_telemetry_s::desc_count",
    ][::std::mem::offset_of!(nixl_capi_xfer_telemetry_s, desc_count) - 32usize];
};
pub type nixl_capi_xfer_telemetry_t = nixl_capi_xfer_telemetry_s;
pub type nixl_capi_create_configured_agent_fn = ::std::option::Option<
    unsafe extern "C" fn(
        name: *const ::std::os::raw::c_char,
        config: *const nixl_capi_agent_config_t,
        agent: *mut nixl_capi_agent_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_agent_fn = ::std::option::Option<
    unsafe extern "C" fn(agent: nixl_capi_agent_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_local_md_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        data: *mut *mut ::std::os::raw::c_void,
        len: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_local_partial_md_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        descs: nixl_capi_reg_dlist_t,
        data: *mut *mut ::std::os::raw::c_void,
        len: *mut usize,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_load_remote_md_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        data: *const ::std::os::raw::c_void,
        len: usize,
        agent_name: *mut *mut ::std::os::raw::c_char,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_invalidate_remote_md_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        remote_agent: *const ::std::os::raw::c_char,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_check_remote_md_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        remote_agent: *const ::std::os::raw::c_char,
        descs: nixl_capi_xfer_dlist_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_agent_make_connection_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        remote_agent: *const ::std::os::raw::c_char,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_available_plugins_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        plugins: *mut nixl_capi_string_list_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_string_list_size_fn = ::std::option::Option<
    unsafe extern "C" fn(
        list: nixl_capi_string_list_t,
        size: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_string_list_get_fn = ::std::option::Option<
    unsafe extern "C" fn(
        list: nixl_capi_string_list_t,
        index: usize,
        text: *mut *const ::std::os::raw::c_char,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_string_list_fn = ::std::option::Option<
    unsafe extern "C" fn(list: nixl_capi_string_list_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_plugin_params_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        plugin: *const ::std::os::raw::c_char,
        mems: *mut nixl_capi_mem_list_t,
        params: *mut nixl_capi_params_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_mem_list_size_fn = ::std::option::Option<
    unsafe extern "C" fn(
        list: nixl_capi_mem_list_t,
        size: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_mem_list_get_fn = ::std::option::Option<
    unsafe extern "C" fn(
        list: nixl_capi_mem_list_t,
        index: usize,
        mem_type: *mut nixl_capi_mem_type_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_mem_list_fn = ::std::option::Option<
    unsafe extern "C" fn(list: nixl_capi_mem_list_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_params_fn = ::std::option::Option<
    unsafe extern "C" fn(params: *mut nixl_capi_params_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_params_add_fn = ::std::option::Option<
    unsafe extern "C" fn(
        params: nixl_capi_params_t,
        key: *const ::std::os::raw::c_char,
        value: *const ::std::os::raw::c_char,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_params_fn = ::std::option::Option<
    unsafe extern "C" fn(params: nixl_capi_params_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_params_create_iterator_fn = ::std::option::Option<
    unsafe extern "C" fn(
        params: nixl_capi_params_t,
        iter: *mut nixl_capi_param_iter_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_params_iterator_next_fn = ::std::option::Option<
    unsafe extern "C" fn(
        iter: nixl_capi_param_iter_t,
        key: *mut *const ::std::os::raw::c_char,
        value: *mut *const ::std::os::raw::c_char,
        has_next: *mut bool,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_params_destroy_iterator_fn = ::std::option::Option<
    unsafe extern "C" fn(iter: nixl_capi_param_iter_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_backend_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        plugin: *const ::std::os::raw::c_char,
        params: nixl_capi_params_t,
        backend: *mut nixl_capi_backend_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_backend_fn = ::std::option::Option<
    unsafe extern "C" fn(backend: nixl_capi_backend_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_backend_params_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        backend: nixl_capi_backend_t,
        mems: *mut nixl_capi_mem_list_t,
        params: *mut nixl_capi_params_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_opt_args_fn = ::std::option::Option<
    unsafe extern "C" fn(args: *mut nixl_capi_opt_args_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_opt_args_fn = ::std::option::Option<
    unsafe extern "C" fn(args: nixl_capi_opt_args_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_opt_args_add_backend_fn = ::std::option::Option<
    unsafe extern "C" fn(
        args: nixl_capi_opt_args_t,
        backend: nixl_capi_backend_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_opt_args_set_notif_msg_fn = ::std::option::Option<
    unsafe extern "C" fn(
        args: nixl_capi_opt_args_t,
        data: *const ::std::os::raw::c_void,
        len: usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_opt_args_set_has_notif_fn = ::std::option::Option<
    unsafe extern "C" fn(
        args: nixl_capi_opt_args_t,
        has_notif: bool,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_opt_args_set_skip_desc_merge_fn = ::std::option::Option<
    unsafe extern "C" fn(
        args: nixl_capi_opt_args_t,
        skip_merge: bool,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_reg_dlist_fn = ::std::option::Option<
    unsafe extern "C" fn(
        mem_type: nixl_capi_mem_type_t,
        dlist: *mut nixl_capi_reg_dlist_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_reg_dlist_add_desc_fn = ::std::option::Option<
    unsafe extern "C" fn(
        dlist: nixl_capi_reg_dlist_t,
        addr: usize,
        len: usize,
        dev_id: u64,
        metadata: *const ::std::os::raw::c_void,
        metadata_len: usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_reg_dlist_fn = ::std::option::Option<
    unsafe extern "C" fn(dlist: nixl_capi_reg_dlist_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_register_mem_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        dlist: nixl_capi_reg_dlist_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_deregister_mem_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        dlist: nixl_capi_reg_dlist_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_xfer_dlist_fn = ::std::option::Option<
    unsafe extern "C" fn(
        mem_type: nixl_capi_mem_type_t,
        dlist: *mut nixl_capi_xfer_dlist_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_xfer_dlist_add_desc_fn = ::std::option::Option<
    unsafe extern "C" fn(
        dlist: nixl_capi_xfer_dlist_t,
        addr: usize,
        len: usize,
        dev_id: u64,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_xfer_dlist_fn = ::std::option::Option<
    unsafe extern "C" fn(dlist: nixl_capi_xfer_dlist_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_prep_xfer_dlist_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        agent_name: *const ::std::os::raw::c_char,
        descs: nixl_capi_xfer_dlist_t,
        handle: *mut nixl_capi_xfer_dlist_handle_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_release_xfer_dlist_handle_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        handle: nixl_capi_xfer_dlist_handle_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_make_xfer_req_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        op: nixl_capi_xfer_op_t,
        local: nixl_capi_xfer_dlist_handle_t,
        local_indices: *const ::std::os::raw::c_int,
        local_count: usize,
        remote: nixl_capi_xfer_dlist_handle_t,
        remote_indices: *const ::std::os::raw::c_int,
        remote_count: usize,
        req: *mut nixl_capi_xfer_req_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_post_xfer_req_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_xfer_status_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_release_xfer_req_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_xfer_req_fn = ::std::option::Option<
    unsafe extern "C" fn(req: nixl_capi_xfer_req_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_xfer_telemetry_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
        telemetry: *mut nixl_capi_xfer_telemetry_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_query_xfer_backend_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
        backend: *mut nixl_capi_backend_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_estimate_xfer_cost_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        req: nixl_capi_xfer_req_t,
        opt_args: nixl_capi_opt_args_t,
        duration_us: *mut i64,
        err_margin_us: *mut i64,
        method: *mut i32,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_create_notif_map_fn = ::std::option::Option<
    unsafe extern "C" fn(map: *mut nixl_capi_notif_map_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_destroy_notif_map_fn = ::std::option::Option<
    unsafe extern "C" fn(map: nixl_capi_notif_map_t) -> nixl_capi_status_t,
>;
pub type nixl_capi_get_notifs_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        map: nixl_capi_notif_map_t,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_notif_map_size_fn = ::std::option::Option<
    unsafe extern "C" fn(
        map: nixl_capi_notif_map_t,
        agents: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_notif_map_get_agent_at_fn = ::std::option::Option<
    unsafe extern "C" fn(
        map: nixl_capi_notif_map_t,
        index: usize,
        agent_name: *mut *const ::std::os::raw::c_char,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_notif_map_get_notifs_size_fn = ::std::option::Option<
    unsafe extern "C" fn(
        map: nixl_capi_notif_map_t,
        agent_name: *const ::std::os::raw::c_char,
        size: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_notif_map_get_notif_fn = ::std::option::Option<
    unsafe extern "C" fn(
        map: nixl_capi_notif_map_t,
        agent_name: *const ::std::os::raw::c_char,
        index: usize,
        data: *mut *const ::std::os::raw::c_void,
        len: *mut usize,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_gen_notif_fn = ::std::option::Option<
    unsafe extern "C" fn(
        agent: nixl_capi_agent_t,
        remote_agent: *const ::std::os::raw::c_char,
        data: *const ::std::os::raw::c_void,
        len: usize,
        opt_args: nixl_capi_opt_args_t,
    ) -> nixl_capi_status_t,
>;
pub type nixl_capi_is_stub_fn = ::std::option::Option<unsafe extern "C" fn() -> bool>;
