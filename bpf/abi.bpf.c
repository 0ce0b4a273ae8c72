/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Never loaded: makes clang describe every type of hark_abi.h in BTF, since BTF drops types that
 * nothing uses. tests/test_abi.py compares the description with what cffi sees, and fails when a
 * type is missing here.
 */
#include "hark_core.h"

#include "hark_abi.h"
#include "hark_abi_check.h"

struct hark_abi_anchor {
	struct hark_rec_head rec_head;
	struct hark_rec_conn_open rec_conn_open;
	struct hark_rec_conn_tls rec_conn_tls;
	struct hark_rec_conn_close rec_conn_close;
	struct hark_rec_upstream rec_upstream;
	struct hark_rec_req_head rec_req_head;
	struct hark_rec_bytes rec_bytes;
	struct hark_rec_res_head rec_res_head;
	struct hark_rec_trailers rec_trailers;
	struct hark_rec_substituted rec_substituted;
	struct hark_rec_refused rec_refused;
	struct hark_rec_exchange_end rec_exchange_end;
	struct hark_rec_task rec_task;
	struct hark_rec_exec rec_exec;
	struct hark_rec_fork rec_fork;
	struct hark_rec_exit rec_exit;
	struct hark_rec_flow rec_flow;
	struct hark_rec_sock_close rec_sock_close;
	struct hark_rec_syscall rec_syscall;
	struct hark_rec_left rec_left;
	struct hark_rec_socket rec_socket;
	struct hark_rec_file rec_file;
	struct hark_rec_cap rec_cap;
	struct hark_ring_key ring_key;
	struct hark_levels levels;
	struct hark_count_key count_key;
	struct hark_spawn spawn;
	struct hark_idle idle;
	struct hark_ring_stats ring_stats;
	struct hark_run_stats run_stats;
	enum hark_rec_kind rec_kind;
	enum hark_rec_flag rec_flag;
	enum hark_med_limit med_limit;
	enum hark_rec_limit rec_limit;
	enum hark_socket_op socket_op;
	enum hark_socket_limit socket_limit;
	enum hark_file_op file_op;
	enum hark_file_limit file_limit;
	enum hark_ring_id ring_id;
	enum hark_run_limit run_limit;
	enum hark_count_nr count_nr;
	enum hark_spawn_limit spawn_limit;
	enum hark_idle_limit idle_limit;
};

struct hark_abi_anchor hark_abi_anchor;
