/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of the structs of hark_abi.h, asserted by every compiler that includes this after it. A
 * changed struct changes a number here on purpose.
 */
#ifndef HARK_ABI_CHECK_H
#define HARK_ABI_CHECK_H

_Static_assert(sizeof(struct hark_rec_head) == 32, "hark_rec_head");
_Static_assert(sizeof(struct hark_rec_conn_open) == 48, "hark_rec_conn_open");
_Static_assert(sizeof(struct hark_rec_conn_tls) == 208, "hark_rec_conn_tls");
_Static_assert(sizeof(struct hark_rec_conn_close) == 32, "hark_rec_conn_close");
_Static_assert(sizeof(struct hark_rec_upstream) == 200, "hark_rec_upstream");
_Static_assert(sizeof(struct hark_rec_req_head) == 16, "hark_rec_req_head");
_Static_assert(sizeof(struct hark_rec_bytes) == 8, "hark_rec_bytes");
_Static_assert(sizeof(struct hark_rec_res_head) == 8, "hark_rec_res_head");
_Static_assert(sizeof(struct hark_rec_trailers) == 8, "hark_rec_trailers");
_Static_assert(sizeof(struct hark_rec_substituted) == 8, "hark_rec_substituted");
_Static_assert(sizeof(struct hark_rec_refused) == 16, "hark_rec_refused");
_Static_assert(sizeof(struct hark_rec_exchange_end) == 24, "hark_rec_exchange_end");
_Static_assert(sizeof(struct hark_rec_task) == 24, "hark_rec_task");
_Static_assert(sizeof(struct hark_rec_exec) == 112, "hark_rec_exec");
_Static_assert(sizeof(struct hark_rec_fork) == 72, "hark_rec_fork");
_Static_assert(sizeof(struct hark_rec_exit) == 64, "hark_rec_exit");
_Static_assert(sizeof(struct hark_rec_flow) == 104, "hark_rec_flow");
_Static_assert(sizeof(struct hark_rec_sock_close) == 72, "hark_rec_sock_close");
_Static_assert(sizeof(struct hark_rec_syscall) == 64, "hark_rec_syscall");
_Static_assert(sizeof(struct hark_rec_left) == 64, "hark_rec_left");
_Static_assert(sizeof(struct hark_rec_socket) == 216, "hark_rec_socket");
_Static_assert(sizeof(struct hark_rec_file) == 80, "hark_rec_file");
_Static_assert(sizeof(struct hark_rec_cap) == 64, "hark_rec_cap");
_Static_assert(sizeof(struct hark_rec_file) + HARK_FILE_PATH + HARK_FILE_NAME + 8 <=
		       HARK_KERNEL_REC_MAX,
	       "HARK_KERNEL_REC_MAX");
_Static_assert(sizeof(struct hark_ring_key) == 16, "hark_ring_key");
_Static_assert(sizeof(struct hark_levels) == 24, "hark_levels");
_Static_assert(sizeof(struct hark_count_key) == 16, "hark_count_key");
_Static_assert(sizeof(struct hark_spawn) == 24, "hark_spawn");
_Static_assert(sizeof(struct hark_idle) == 56, "hark_idle");
_Static_assert(sizeof(struct hark_run_stats) == 80, "hark_run_stats");
_Static_assert(sizeof(struct hark_rec_exec) + HARK_EXEC_NAME_MAX + HARK_EXEC_ARGV_MAX + 8 <=
		       HARK_KERNEL_REC_MAX,
	       "HARK_KERNEL_REC_MAX");

#endif
