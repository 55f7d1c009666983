//! The exported functions: C on the outside, a result inside.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use nixl_sys::*;

use crate::agent::{Agent, Descriptors, Prepared};
use crate::control::RELEASED_IN_FLIGHT;
use crate::handle::{bytes, give, malloced, store, take, text, value};
use crate::mailbox::Messages;
use crate::script::{self, Fault};
use crate::status::{BACKEND, Failed, INVALID_PARAM, INVALID_STATE, Outcome, scripted};
use crate::transfer::Transfer;

struct Texts(Vec<CString>);
struct Kinds(Vec<i32>);
#[derive(Default)]
struct Parameters(BTreeMap<CString, CString>);
struct ParameterCursor {
    pairs: Vec<(CString, CString)>,
    next: usize,
}
struct BackendHandle;
#[derive(Default)]
struct Arguments {
    message: Vec<u8>,
    has_notification: bool,
    skip_merge: bool,
}
/// The request is taken out by a release, as NIXL does.
struct Request(Option<Transfer>);
#[derive(Default)]
struct Arrived(Vec<(CString, Vec<Vec<u8>>)>);

impl Arrived {
    fn of(&self, agent: *const c_char) -> Outcome<&[Vec<u8>]> {
        // SAFETY: the callers pass on a C string of their caller's.
        let name = unsafe { text(agent)? };
        self.0
            .iter()
            .find(|(known, _)| known.as_bytes() == name.as_bytes())
            .map(|(_, messages)| messages.as_slice())
            .ok_or(INVALID_PARAM)
    }

    fn add(&mut self, messages: Messages) {
        for (sender, mut arrived) in messages {
            let Ok(sender) = CString::new(sender) else { continue };
            match self.0.iter_mut().find(|(known, _)| *known == sender) {
                Some((_, messages)) => messages.append(&mut arrived),
                None => self.0.push((sender, arrived)),
            }
        }
    }
}

/// Defines one exported function and checks it against its type in the header.
macro_rules! export {
    ($(fn $name:ident: $type:ident ($($argument:ident: $argument_type:ty),* $(,)?) $body:block)*) => {$(
        /// As NIXL's function of this name.
        ///
        /// # Safety
        /// As NIXL's: handles are live and come from the matching calls, other pointers are valid.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $argument_type),*) -> nixl_capi_status_t {
            let body = || -> Outcome<()> {
                // SAFETY: the caller keeps the rules of NIXL's C API, which are those of the helpers used inside.
                unsafe { $body }
            };
            body().map_or_else(|failed| failed.0, |()| NIXL_CAPI_SUCCESS)
        }
        const _: $type = Some($name);
    )*};
}

export! {
fn nixl_capi_create_configured_agent: nixl_capi_create_configured_agent_fn (
    name: *const c_char, config: *const nixl_capi_agent_config_t, agent: *mut nixl_capi_agent_t,
) {
    let config = config.as_ref().ok_or(INVALID_PARAM)?;
    give(agent, Agent::new(text(name)?, config.capture_telemetry)?)
}

fn nixl_capi_destroy_agent: nixl_capi_destroy_agent_fn (agent: nixl_capi_agent_t) {
    take::<Agent, _>(agent).map(drop)
}

fn nixl_capi_get_local_md: nixl_capi_get_local_md_fn (
    agent: nixl_capi_agent_t, data: *mut *mut c_void, len: *mut usize,
) {
    let own = value::<Agent, _>(agent)?.metadata().encode();
    let blob = script::metadata().unwrap_or(own);
    store(len, blob.len())?;
    store(data, malloced(&blob).cast())
}

fn nixl_capi_get_local_partial_md: nixl_capi_get_local_partial_md_fn (
    agent: nixl_capi_agent_t, _descs: nixl_capi_reg_dlist_t, data: *mut *mut c_void, len: *mut usize,
    _args: nixl_capi_opt_args_t,
) {
    let blob = value::<Agent, _>(agent)?.metadata().encode();
    store(len, blob.len())?;
    store(data, malloced(&blob).cast())
}

fn nixl_capi_load_remote_md: nixl_capi_load_remote_md_fn (
    agent: nixl_capi_agent_t, data: *const c_void, len: usize, name: *mut *mut c_char,
) {
    let peer = value::<Agent, _>(agent)?.load(&bytes(data, len))?;
    let peer = CString::new(peer).map_err(|_| BACKEND)?;
    store(name, malloced(peer.as_bytes_with_nul()).cast())
}

fn nixl_capi_invalidate_remote_md: nixl_capi_invalidate_remote_md_fn (
    agent: nixl_capi_agent_t, peer: *const c_char,
) {
    value::<Agent, _>(agent)?.forget(&text(peer)?)
}

fn nixl_capi_check_remote_md: nixl_capi_check_remote_md_fn (
    agent: nixl_capi_agent_t, peer: *const c_char, _descs: nixl_capi_xfer_dlist_t,
) {
    value::<Agent, _>(agent)?.peer(&text(peer)?).map(drop)
}

fn nixl_capi_agent_make_connection: nixl_capi_agent_make_connection_fn (
    agent: nixl_capi_agent_t, peer: *const c_char, _args: nixl_capi_opt_args_t,
) {
    value::<Agent, _>(agent)?.peer(&text(peer)?).map(drop)
}

fn nixl_capi_get_available_plugins: nixl_capi_get_available_plugins_fn (
    agent: nixl_capi_agent_t, plugins: *mut nixl_capi_string_list_t,
) {
    value::<Agent, _>(agent)?;
    let names = Agent::plugins().into_iter().filter_map(|name| CString::new(name).ok()).collect();
    give(plugins, Texts(names))
}

fn nixl_capi_string_list_size: nixl_capi_string_list_size_fn (list: nixl_capi_string_list_t, size: *mut usize) {
    store(size, value::<Texts, _>(list)?.0.len())
}

fn nixl_capi_string_list_get: nixl_capi_string_list_get_fn (
    list: nixl_capi_string_list_t, index: usize, out: *mut *const c_char,
) {
    store(out, value::<Texts, _>(list)?.0.get(index).ok_or(INVALID_PARAM)?.as_ptr())
}

fn nixl_capi_destroy_string_list: nixl_capi_destroy_string_list_fn (list: nixl_capi_string_list_t) {
    take::<Texts, _>(list).map(drop)
}

fn nixl_capi_get_plugin_params: nixl_capi_get_plugin_params_fn (
    agent: nixl_capi_agent_t, plugin: *const c_char, mems: *mut nixl_capi_mem_list_t,
    params: *mut nixl_capi_params_t,
) {
    value::<Agent, _>(agent)?;
    if !Agent::plugins().contains(&text(plugin)?.as_str()) {
        return Err(BACKEND);
    }
    give(mems, Kinds(vec![NIXL_CAPI_MEM_DRAM]))?;
    give(params, defaults())
}

fn nixl_capi_get_backend_params: nixl_capi_get_backend_params_fn (
    agent: nixl_capi_agent_t, backend: nixl_capi_backend_t, mems: *mut nixl_capi_mem_list_t,
    params: *mut nixl_capi_params_t,
) {
    value::<Agent, _>(agent)?;
    value::<BackendHandle, _>(backend)?;
    give(mems, Kinds(vec![NIXL_CAPI_MEM_DRAM]))?;
    give(params, defaults())
}

fn nixl_capi_mem_list_size: nixl_capi_mem_list_size_fn (list: nixl_capi_mem_list_t, size: *mut usize) {
    store(size, value::<Kinds, _>(list)?.0.len())
}

fn nixl_capi_mem_list_get: nixl_capi_mem_list_get_fn (
    list: nixl_capi_mem_list_t, index: usize, out: *mut nixl_capi_mem_type_t,
) {
    store(out, *value::<Kinds, _>(list)?.0.get(index).ok_or(INVALID_PARAM)?)
}

fn nixl_capi_destroy_mem_list: nixl_capi_destroy_mem_list_fn (list: nixl_capi_mem_list_t) {
    take::<Kinds, _>(list).map(drop)
}

fn nixl_capi_create_params: nixl_capi_create_params_fn (params: *mut nixl_capi_params_t) {
    give(params, Parameters::default())
}

fn nixl_capi_params_add: nixl_capi_params_add_fn (
    params: nixl_capi_params_t, key: *const c_char, text_value: *const c_char,
) {
    let (key, text_value) = (CString::new(text(key)?), CString::new(text(text_value)?));
    value::<Parameters, _>(params)?.0.insert(key.map_err(|_| INVALID_PARAM)?, text_value.map_err(|_| INVALID_PARAM)?);
    Ok(())
}

fn nixl_capi_destroy_params: nixl_capi_destroy_params_fn (params: nixl_capi_params_t) {
    take::<Parameters, _>(params).map(drop)
}

fn nixl_capi_params_create_iterator: nixl_capi_params_create_iterator_fn (
    params: nixl_capi_params_t, iterator: *mut nixl_capi_param_iter_t,
) {
    let pairs = value::<Parameters, _>(params)?.0.clone().into_iter().collect();
    give(iterator, ParameterCursor { pairs, next: 0 })
}

fn nixl_capi_params_iterator_next: nixl_capi_params_iterator_next_fn (
    iterator: nixl_capi_param_iter_t, key: *mut *const c_char, text_value: *mut *const c_char, more: *mut bool,
) {
    let cursor = value::<ParameterCursor, _>(iterator)?;
    let Some((name, content)) = cursor.pairs.get(cursor.next) else {
        return store(more, false);
    };
    cursor.next += 1;
    store(key, name.as_ptr())?;
    store(text_value, content.as_ptr())?;
    store(more, cursor.next < cursor.pairs.len())
}

fn nixl_capi_params_destroy_iterator: nixl_capi_params_destroy_iterator_fn (iterator: nixl_capi_param_iter_t) {
    take::<ParameterCursor, _>(iterator).map(drop)
}

fn nixl_capi_create_backend: nixl_capi_create_backend_fn (
    agent: nixl_capi_agent_t, plugin: *const c_char, params: nixl_capi_params_t, backend: *mut nixl_capi_backend_t,
) {
    value::<Parameters, _>(params)?;
    value::<Agent, _>(agent)?.create_backend(&text(plugin)?)?;
    give(backend, BackendHandle)
}

fn nixl_capi_destroy_backend: nixl_capi_destroy_backend_fn (backend: nixl_capi_backend_t) {
    take::<BackendHandle, _>(backend).map(drop)
}

fn nixl_capi_create_opt_args: nixl_capi_create_opt_args_fn (args: *mut nixl_capi_opt_args_t) {
    give(args, Arguments::default())
}

fn nixl_capi_destroy_opt_args: nixl_capi_destroy_opt_args_fn (args: nixl_capi_opt_args_t) {
    take::<Arguments, _>(args).map(drop)
}

fn nixl_capi_opt_args_add_backend: nixl_capi_opt_args_add_backend_fn (
    args: nixl_capi_opt_args_t, backend: nixl_capi_backend_t,
) {
    value::<BackendHandle, _>(backend)?;
    value::<Arguments, _>(args).map(drop)
}

fn nixl_capi_opt_args_set_notif_msg: nixl_capi_opt_args_set_notif_msg_fn (
    args: nixl_capi_opt_args_t, data: *const c_void, len: usize,
) {
    value::<Arguments, _>(args)?.message = bytes(data, len);
    Ok(())
}

fn nixl_capi_opt_args_set_has_notif: nixl_capi_opt_args_set_has_notif_fn (
    args: nixl_capi_opt_args_t, has_notification: bool,
) {
    value::<Arguments, _>(args)?.has_notification = has_notification;
    Ok(())
}

fn nixl_capi_opt_args_set_skip_desc_merge: nixl_capi_opt_args_set_skip_desc_merge_fn (
    args: nixl_capi_opt_args_t, skip_merge: bool,
) {
    value::<Arguments, _>(args)?.skip_merge = skip_merge;
    Ok(())
}

fn nixl_capi_create_reg_dlist: nixl_capi_create_reg_dlist_fn (
    kind: nixl_capi_mem_type_t, list: *mut nixl_capi_reg_dlist_t,
) {
    give(list, Descriptors { kind, list: Vec::new() })
}

fn nixl_capi_reg_dlist_add_desc: nixl_capi_reg_dlist_add_desc_fn (
    list: nixl_capi_reg_dlist_t, address: usize, len: usize, device: u64, _metadata: *const c_void,
    _metadata_len: usize,
) {
    value::<Descriptors, _>(list)?.list.push(((address, len), device));
    Ok(())
}

fn nixl_capi_destroy_reg_dlist: nixl_capi_destroy_reg_dlist_fn (list: nixl_capi_reg_dlist_t) {
    take::<Descriptors, _>(list).map(drop)
}

fn nixl_capi_register_mem: nixl_capi_register_mem_fn (
    agent: nixl_capi_agent_t, list: nixl_capi_reg_dlist_t, _args: nixl_capi_opt_args_t,
) {
    value::<Agent, _>(agent)?.register(value::<Descriptors, _>(list)?)
}

fn nixl_capi_deregister_mem: nixl_capi_deregister_mem_fn (
    agent: nixl_capi_agent_t, list: nixl_capi_reg_dlist_t, _args: nixl_capi_opt_args_t,
) {
    value::<Agent, _>(agent)?.deregister(value::<Descriptors, _>(list)?)
}

fn nixl_capi_create_xfer_dlist: nixl_capi_create_xfer_dlist_fn (
    kind: nixl_capi_mem_type_t, list: *mut nixl_capi_xfer_dlist_t,
) {
    give(list, Descriptors { kind, list: Vec::new() })
}

fn nixl_capi_xfer_dlist_add_desc: nixl_capi_xfer_dlist_add_desc_fn (
    list: nixl_capi_xfer_dlist_t, address: usize, len: usize, device: u64,
) {
    value::<Descriptors, _>(list)?.list.push(((address, len), device));
    Ok(())
}

fn nixl_capi_destroy_xfer_dlist: nixl_capi_destroy_xfer_dlist_fn (list: nixl_capi_xfer_dlist_t) {
    take::<Descriptors, _>(list).map(drop)
}

fn nixl_capi_prep_xfer_dlist: nixl_capi_prep_xfer_dlist_fn (
    agent: nixl_capi_agent_t, peer: *const c_char, list: nixl_capi_xfer_dlist_t,
    handle: *mut nixl_capi_xfer_dlist_handle_t, _args: nixl_capi_opt_args_t,
) {
    let prepared = value::<Agent, _>(agent)?.prepare(&text(peer)?, value::<Descriptors, _>(list)?)?;
    give(handle, prepared)
}

fn nixl_capi_release_xfer_dlist_handle: nixl_capi_release_xfer_dlist_handle_fn (
    agent: nixl_capi_agent_t, handle: nixl_capi_xfer_dlist_handle_t,
) {
    value::<Agent, _>(agent)?;
    take::<Prepared, _>(handle).map(drop)
}

fn nixl_capi_make_xfer_req: nixl_capi_make_xfer_req_fn (
    agent: nixl_capi_agent_t, operation: nixl_capi_xfer_op_t,
    local: nixl_capi_xfer_dlist_handle_t, local_indices: *const c_int, local_count: usize,
    remote: nixl_capi_xfer_dlist_handle_t, remote_indices: *const c_int, remote_count: usize,
    request: *mut nixl_capi_xfer_req_t, args: nixl_capi_opt_args_t,
) {
    let agent = value::<Agent, _>(agent)?;
    let remote = value::<Prepared, _>(remote)?;
    agent.peer(remote.peer.as_deref().unwrap_or_default())?;
    let mut transfer = Transfer::new(
        operation,
        (value::<Prepared, _>(local)?, indices(local_indices, local_count)),
        (remote, indices(remote_indices, remote_count)),
        args.cast::<Arguments>().as_ref().is_some_and(|args| args.skip_merge),
    )?;
    renotify(&mut transfer, args);
    give(request, Request(Some(transfer)))
}

fn nixl_capi_post_xfer_req: nixl_capi_post_xfer_req_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t, args: nixl_capi_opt_args_t,
) {
    let transfer = live(request)?;
    renotify(transfer, args);
    transfer.post(value::<Agent, _>(agent)?)
}

fn nixl_capi_get_xfer_status: nixl_capi_get_xfer_status_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t,
) {
    live(request)?.poll(value::<Agent, _>(agent)?)
}

fn nixl_capi_release_xfer_req: nixl_capi_release_xfer_req_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t,
) {
    value::<Agent, _>(agent)?;
    let transfer = value::<Request, _>(request)?.0.take().ok_or(INVALID_PARAM)?;
    if transfer.is_in_flight() {
        RELEASED_IN_FLIGHT.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn nixl_capi_destroy_xfer_req: nixl_capi_destroy_xfer_req_fn (request: nixl_capi_xfer_req_t) {
    if value::<Request, _>(request)?.0.is_some() {
        return Err(INVALID_STATE);
    }
    take::<Request, _>(request).map(drop)
}

fn nixl_capi_get_xfer_telemetry: nixl_capi_get_xfer_telemetry_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t, telemetry: *mut nixl_capi_xfer_telemetry_t,
) {
    store(telemetry, live(request)?.telemetry(value::<Agent, _>(agent)?)?)
}

fn nixl_capi_query_xfer_backend: nixl_capi_query_xfer_backend_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t, backend: *mut nixl_capi_backend_t,
) {
    value::<Agent, _>(agent)?;
    live(request)?;
    give(backend, BackendHandle)
}

fn nixl_capi_estimate_xfer_cost: nixl_capi_estimate_xfer_cost_fn (
    agent: nixl_capi_agent_t, request: nixl_capi_xfer_req_t, _args: nixl_capi_opt_args_t, duration_us: *mut i64,
    margin_us: *mut i64, method: *mut i32,
) {
    value::<Agent, _>(agent)?;
    // As if every wire carried 10 GB/s.
    store(duration_us, i64::try_from(live(request)?.total_bytes() / 10_000).unwrap_or(i64::MAX))?;
    store(margin_us, 0)?;
    store(method, 0)
}

fn nixl_capi_create_notif_map: nixl_capi_create_notif_map_fn (map: *mut nixl_capi_notif_map_t) {
    give(map, Arrived::default())
}

fn nixl_capi_destroy_notif_map: nixl_capi_destroy_notif_map_fn (map: nixl_capi_notif_map_t) {
    take::<Arrived, _>(map).map(drop)
}

fn nixl_capi_get_notifs: nixl_capi_get_notifs_fn (
    agent: nixl_capi_agent_t, map: nixl_capi_notif_map_t, _args: nixl_capi_opt_args_t,
) {
    scripted(script::active(|fault| if let Fault::GetNotifs(status) = fault { Some(status) } else { None }))?;
    value::<Arrived, _>(map)?.add(value::<Agent, _>(agent)?.mailbox.take());
    Ok(())
}

fn nixl_capi_notif_map_size: nixl_capi_notif_map_size_fn (map: nixl_capi_notif_map_t, size: *mut usize) {
    store(size, value::<Arrived, _>(map)?.0.len())
}

fn nixl_capi_notif_map_get_agent_at: nixl_capi_notif_map_get_agent_at_fn (
    map: nixl_capi_notif_map_t, index: usize, name: *mut *const c_char,
) {
    store(name, value::<Arrived, _>(map)?.0.get(index).ok_or(INVALID_PARAM)?.0.as_ptr())
}

fn nixl_capi_notif_map_get_notifs_size: nixl_capi_notif_map_get_notifs_size_fn (
    map: nixl_capi_notif_map_t, name: *const c_char, size: *mut usize,
) {
    store(size, value::<Arrived, _>(map)?.of(name)?.len())
}

fn nixl_capi_notif_map_get_notif: nixl_capi_notif_map_get_notif_fn (
    map: nixl_capi_notif_map_t, name: *const c_char, index: usize, data: *mut *const c_void, len: *mut usize,
) {
    let message = value::<Arrived, _>(map)?.of(name)?.get(index).ok_or(INVALID_PARAM)?;
    store(data, message.as_ptr().cast())?;
    store(len, message.len())
}

fn nixl_capi_gen_notif: nixl_capi_gen_notif_fn (
    agent: nixl_capi_agent_t, peer: *const c_char, data: *const c_void, len: usize, _args: nixl_capi_opt_args_t,
) {
    value::<Agent, _>(agent)?.send(&text(peer)?, &bytes(data, len))
}
}

/// As NIXL's: this library is no stub, however fake it is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nixl_capi_is_stub() -> bool {
    false
}

fn defaults() -> Parameters {
    let pairs = [(c"device_list", c""), (c"num_workers", c"1"), (c"ucx_error_handling_mode", c"peer")];
    Parameters(pairs.map(|(key, content)| (key.to_owned(), content.to_owned())).into())
}

/// # Safety
/// `data` must hold `count` numbers, or `count` be zero.
unsafe fn indices<'a>(data: *const c_int, count: usize) -> &'a [i32] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// # Safety
/// `request` must be null or a live handle.
unsafe fn live<'a>(request: nixl_capi_xfer_req_t) -> Outcome<&'a mut Transfer> {
    // SAFETY: the caller's word.
    unsafe { value::<Request, _>(request) }?.0.as_mut().ok_or(Failed(NIXL_CAPI_ERROR_INVALID_PARAM))
}

/// Optional arguments, where given, decide about the notification.
///
/// # Safety
/// `args` must be null or a live handle.
unsafe fn renotify(transfer: &mut Transfer, args: nixl_capi_opt_args_t) {
    // SAFETY: the caller's word.
    if let Some(args) = unsafe { args.cast::<Arguments>().as_ref() } {
        transfer.notification = args.has_notification.then(|| args.message.clone());
    }
}
