/*
 * The part of NIXL's C API that kvwire uses, in our own words.
 *
 * The functions are written as function-pointer types, because the library is opened at run time and
 * nothing here is ever linked: `nixl_capi_X_fn` is the type of the exported symbol `nixl_capi_X`.
 * Signatures are those of NIXL 0.10.1 to 1.5.x, over which this API only grew. Every function that returns
 * `nixl_capi_status_t` returns one of the codes below; later versions may add codes, so it stays an integer.
 *
 * The bindings in src/bindings.rs are generated from this file: run `make bindings` after a change.
 */
#ifndef KVWIRE_NIXL_CAPI_H
#define KVWIRE_NIXL_CAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A status: zero is success, positive is "not finished", negative is an error. */
typedef int32_t nixl_capi_status_t;
#define NIXL_CAPI_SUCCESS 0
#define NIXL_CAPI_IN_PROG 1
#define NIXL_CAPI_ERROR_INVALID_PARAM -1
/* Most causes arrive as this one, among them: not posted, mismatch, repost while active, peer disconnected. */
#define NIXL_CAPI_ERROR_BACKEND -2
#define NIXL_CAPI_ERROR_INVALID_STATE -3
#define NIXL_CAPI_ERROR_EXCEPTION -4
/* From 0.10 on. */
#define NIXL_CAPI_ERROR_NO_TELEMETRY -5
/* From 1.5 on; earlier versions answer NIXL_CAPI_ERROR_BACKEND. */
#define NIXL_CAPI_ERROR_NOT_FOUND -6

/* Where memory lives. */
typedef int32_t nixl_capi_mem_type_t;
#define NIXL_CAPI_MEM_DRAM 0
#define NIXL_CAPI_MEM_VRAM 1
#define NIXL_CAPI_MEM_BLOCK 2
#define NIXL_CAPI_MEM_OBJECT 3
#define NIXL_CAPI_MEM_FILE 4
#define NIXL_CAPI_MEM_UNKNOWN 5

/* Direction of a transfer, seen from the initiator. */
typedef int32_t nixl_capi_xfer_op_t;
#define NIXL_CAPI_XFER_OP_READ 0
#define NIXL_CAPI_XFER_OP_WRITE 1

/* How an agent guards itself against use from several threads. */
typedef int32_t nixl_capi_thread_sync_t;
#define NIXL_CAPI_THREAD_SYNC_NONE 0
#define NIXL_CAPI_THREAD_SYNC_STRICT 1
#define NIXL_CAPI_THREAD_SYNC_RW 2

/* Opaque handles. */
typedef struct nixl_capi_agent_s *nixl_capi_agent_t;
typedef struct nixl_capi_backend_s *nixl_capi_backend_t;
typedef struct nixl_capi_string_list_s *nixl_capi_string_list_t;
typedef struct nixl_capi_mem_list_s *nixl_capi_mem_list_t;
typedef struct nixl_capi_params_s *nixl_capi_params_t;
typedef struct nixl_capi_param_iter_s *nixl_capi_param_iter_t;
typedef struct nixl_capi_opt_args_s *nixl_capi_opt_args_t;
typedef struct nixl_capi_reg_dlist_s *nixl_capi_reg_dlist_t;
typedef struct nixl_capi_xfer_dlist_s *nixl_capi_xfer_dlist_t;
typedef struct nixl_capi_xfer_dlist_handle_s *nixl_capi_xfer_dlist_handle_t;
typedef struct nixl_capi_xfer_req_s *nixl_capi_xfer_req_t;
typedef struct nixl_capi_notif_map_s *nixl_capi_notif_map_t;

/* Agent settings. `num_workers` is not read by any version: it is a parameter of the UCX backend instead. */
typedef struct nixl_capi_agent_config_s {
    bool enable_prog_thread;
    bool enable_listen_thread;
    int listen_port;
    nixl_capi_thread_sync_t thread_sync;
    unsigned int num_workers;
    uint64_t pthr_delay_us;
    uint64_t lthr_delay_us;
    bool capture_telemetry;
} nixl_capi_agent_config_t;

/* What NIXL measured for the last completed post. `start_time_us` is on the monotonic clock. */
typedef struct nixl_capi_xfer_telemetry_s {
    uint64_t start_time_us;
    uint64_t post_duration_us;
    uint64_t xfer_duration_us;
    uint64_t total_bytes;
    uint64_t desc_count;
} nixl_capi_xfer_telemetry_t;

/* ---- agent and metadata ---- */
typedef nixl_capi_status_t (*nixl_capi_create_configured_agent_fn)(const char *name,
                                                                   const nixl_capi_agent_config_t *config,
                                                                   nixl_capi_agent_t *agent);
typedef nixl_capi_status_t (*nixl_capi_destroy_agent_fn)(nixl_capi_agent_t agent);
/* `data` is allocated with malloc and given to the caller. */
typedef nixl_capi_status_t (*nixl_capi_get_local_md_fn)(nixl_capi_agent_t agent, void **data, size_t *len);
typedef nixl_capi_status_t (*nixl_capi_get_local_partial_md_fn)(nixl_capi_agent_t agent, nixl_capi_reg_dlist_t descs,
                                                                void **data, size_t *len,
                                                                nixl_capi_opt_args_t opt_args);
/* `agent_name` is allocated with malloc and given to the caller. */
typedef nixl_capi_status_t (*nixl_capi_load_remote_md_fn)(nixl_capi_agent_t agent, const void *data, size_t len,
                                                          char **agent_name);
typedef nixl_capi_status_t (*nixl_capi_invalidate_remote_md_fn)(nixl_capi_agent_t agent, const char *remote_agent);
typedef nixl_capi_status_t (*nixl_capi_check_remote_md_fn)(nixl_capi_agent_t agent, const char *remote_agent,
                                                           nixl_capi_xfer_dlist_t descs);
typedef nixl_capi_status_t (*nixl_capi_agent_make_connection_fn)(nixl_capi_agent_t agent, const char *remote_agent,
                                                                 nixl_capi_opt_args_t opt_args);

/* ---- plugins and backends ---- */
typedef nixl_capi_status_t (*nixl_capi_get_available_plugins_fn)(nixl_capi_agent_t agent,
                                                                 nixl_capi_string_list_t *plugins);
typedef nixl_capi_status_t (*nixl_capi_string_list_size_fn)(nixl_capi_string_list_t list, size_t *size);
typedef nixl_capi_status_t (*nixl_capi_string_list_get_fn)(nixl_capi_string_list_t list, size_t index,
                                                           const char **text);
typedef nixl_capi_status_t (*nixl_capi_destroy_string_list_fn)(nixl_capi_string_list_t list);
typedef nixl_capi_status_t (*nixl_capi_get_plugin_params_fn)(nixl_capi_agent_t agent, const char *plugin,
                                                             nixl_capi_mem_list_t *mems, nixl_capi_params_t *params);
typedef nixl_capi_status_t (*nixl_capi_mem_list_size_fn)(nixl_capi_mem_list_t list, size_t *size);
typedef nixl_capi_status_t (*nixl_capi_mem_list_get_fn)(nixl_capi_mem_list_t list, size_t index,
                                                        nixl_capi_mem_type_t *mem_type);
typedef nixl_capi_status_t (*nixl_capi_destroy_mem_list_fn)(nixl_capi_mem_list_t list);
typedef nixl_capi_status_t (*nixl_capi_create_params_fn)(nixl_capi_params_t *params);
typedef nixl_capi_status_t (*nixl_capi_params_add_fn)(nixl_capi_params_t params, const char *key, const char *value);
typedef nixl_capi_status_t (*nixl_capi_destroy_params_fn)(nixl_capi_params_t params);
typedef nixl_capi_status_t (*nixl_capi_params_create_iterator_fn)(nixl_capi_params_t params,
                                                                  nixl_capi_param_iter_t *iter);
/* At the end `key` and `value` are left untouched; otherwise `has_next` says whether another pair follows. */
typedef nixl_capi_status_t (*nixl_capi_params_iterator_next_fn)(nixl_capi_param_iter_t iter, const char **key,
                                                                const char **value, bool *has_next);
typedef nixl_capi_status_t (*nixl_capi_params_destroy_iterator_fn)(nixl_capi_param_iter_t iter);
typedef nixl_capi_status_t (*nixl_capi_create_backend_fn)(nixl_capi_agent_t agent, const char *plugin,
                                                          nixl_capi_params_t params, nixl_capi_backend_t *backend);
/* Frees the handle only: the backend itself lives as long as its agent. */
typedef nixl_capi_status_t (*nixl_capi_destroy_backend_fn)(nixl_capi_backend_t backend);
typedef nixl_capi_status_t (*nixl_capi_get_backend_params_fn)(nixl_capi_agent_t agent, nixl_capi_backend_t backend,
                                                              nixl_capi_mem_list_t *mems, nixl_capi_params_t *params);

/* ---- optional arguments ---- */
typedef nixl_capi_status_t (*nixl_capi_create_opt_args_fn)(nixl_capi_opt_args_t *args);
typedef nixl_capi_status_t (*nixl_capi_destroy_opt_args_fn)(nixl_capi_opt_args_t args);
typedef nixl_capi_status_t (*nixl_capi_opt_args_add_backend_fn)(nixl_capi_opt_args_t args,
                                                                nixl_capi_backend_t backend);
typedef nixl_capi_status_t (*nixl_capi_opt_args_set_notif_msg_fn)(nixl_capi_opt_args_t args, const void *data,
                                                                  size_t len);
typedef nixl_capi_status_t (*nixl_capi_opt_args_set_has_notif_fn)(nixl_capi_opt_args_t args, bool has_notif);
typedef nixl_capi_status_t (*nixl_capi_opt_args_set_skip_desc_merge_fn)(nixl_capi_opt_args_t args, bool skip_merge);

/* ---- registration ---- */
typedef nixl_capi_status_t (*nixl_capi_create_reg_dlist_fn)(nixl_capi_mem_type_t mem_type,
                                                            nixl_capi_reg_dlist_t *dlist);
typedef nixl_capi_status_t (*nixl_capi_reg_dlist_add_desc_fn)(nixl_capi_reg_dlist_t dlist, uintptr_t addr, size_t len,
                                                              uint64_t dev_id, const void *metadata,
                                                              size_t metadata_len);
typedef nixl_capi_status_t (*nixl_capi_destroy_reg_dlist_fn)(nixl_capi_reg_dlist_t dlist);
typedef nixl_capi_status_t (*nixl_capi_register_mem_fn)(nixl_capi_agent_t agent, nixl_capi_reg_dlist_t dlist,
                                                        nixl_capi_opt_args_t opt_args);
typedef nixl_capi_status_t (*nixl_capi_deregister_mem_fn)(nixl_capi_agent_t agent, nixl_capi_reg_dlist_t dlist,
                                                          nixl_capi_opt_args_t opt_args);

/* ---- descriptor lists ---- */
typedef nixl_capi_status_t (*nixl_capi_create_xfer_dlist_fn)(nixl_capi_mem_type_t mem_type,
                                                             nixl_capi_xfer_dlist_t *dlist);
typedef nixl_capi_status_t (*nixl_capi_xfer_dlist_add_desc_fn)(nixl_capi_xfer_dlist_t dlist, uintptr_t addr,
                                                               size_t len, uint64_t dev_id);
typedef nixl_capi_status_t (*nixl_capi_destroy_xfer_dlist_fn)(nixl_capi_xfer_dlist_t dlist);
/* An empty `agent_name` means the local side. `descs` is copied. */
typedef nixl_capi_status_t (*nixl_capi_prep_xfer_dlist_fn)(nixl_capi_agent_t agent, const char *agent_name,
                                                           nixl_capi_xfer_dlist_t descs,
                                                           nixl_capi_xfer_dlist_handle_t *handle,
                                                           nixl_capi_opt_args_t opt_args);
typedef nixl_capi_status_t (*nixl_capi_release_xfer_dlist_handle_fn)(nixl_capi_agent_t agent,
                                                                     nixl_capi_xfer_dlist_handle_t handle);

/* ---- transfers ---- */
typedef nixl_capi_status_t (*nixl_capi_make_xfer_req_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_op_t op,
                                                         nixl_capi_xfer_dlist_handle_t local,
                                                         const int *local_indices, size_t local_count,
                                                         nixl_capi_xfer_dlist_handle_t remote,
                                                         const int *remote_indices, size_t remote_count,
                                                         nixl_capi_xfer_req_t *req, nixl_capi_opt_args_t opt_args);
/* Without `opt_args` the notification given at make time is sent. */
typedef nixl_capi_status_t (*nixl_capi_post_xfer_req_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req,
                                                         nixl_capi_opt_args_t opt_args);
typedef nixl_capi_status_t (*nixl_capi_get_xfer_status_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req);
typedef nixl_capi_status_t (*nixl_capi_release_xfer_req_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req);
/* Frees the handle, after a release that succeeded. */
typedef nixl_capi_status_t (*nixl_capi_destroy_xfer_req_fn)(nixl_capi_xfer_req_t req);
typedef nixl_capi_status_t (*nixl_capi_get_xfer_telemetry_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req,
                                                              nixl_capi_xfer_telemetry_t *telemetry);
/* `backend` is a new handle, to be freed with nixl_capi_destroy_backend. */
typedef nixl_capi_status_t (*nixl_capi_query_xfer_backend_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req,
                                                              nixl_capi_backend_t *backend);
typedef nixl_capi_status_t (*nixl_capi_estimate_xfer_cost_fn)(nixl_capi_agent_t agent, nixl_capi_xfer_req_t req,
                                                              nixl_capi_opt_args_t opt_args, int64_t *duration_us,
                                                              int64_t *err_margin_us, int32_t *method);

/* ---- notifications ---- */
typedef nixl_capi_status_t (*nixl_capi_create_notif_map_fn)(nixl_capi_notif_map_t *map);
typedef nixl_capi_status_t (*nixl_capi_destroy_notif_map_fn)(nixl_capi_notif_map_t map);
/* Adds what arrived to `map`, and progresses the backends. */
typedef nixl_capi_status_t (*nixl_capi_get_notifs_fn)(nixl_capi_agent_t agent, nixl_capi_notif_map_t map,
                                                      nixl_capi_opt_args_t opt_args);
typedef nixl_capi_status_t (*nixl_capi_notif_map_size_fn)(nixl_capi_notif_map_t map, size_t *agents);
typedef nixl_capi_status_t (*nixl_capi_notif_map_get_agent_at_fn)(nixl_capi_notif_map_t map, size_t index,
                                                                  const char **agent_name);
typedef nixl_capi_status_t (*nixl_capi_notif_map_get_notifs_size_fn)(nixl_capi_notif_map_t map,
                                                                     const char *agent_name, size_t *size);
typedef nixl_capi_status_t (*nixl_capi_notif_map_get_notif_fn)(nixl_capi_notif_map_t map, const char *agent_name,
                                                               size_t index, const void **data, size_t *len);
typedef nixl_capi_status_t (*nixl_capi_gen_notif_fn)(nixl_capi_agent_t agent, const char *remote_agent,
                                                     const void *data, size_t len, nixl_capi_opt_args_t opt_args);

/* ---- the library itself ---- */
/* True for the link-time stand-in that NIXL builds where the real library is absent. */
typedef bool (*nixl_capi_is_stub_fn)(void);

#endif
