// The part of the ABI of libibverbs and librdmacm that this package uses, in
// declarations of its own, so that it builds without their headers. The layouts
// have stood since IBVERBS_1.1 and RDMACM_1.0; a test in test/lab compares them
// with the headers that are installed there.
#ifndef GOSDP_VERBS_ABI_H
#define GOSDP_VERBS_ABI_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { V_ACCESS_LOCAL_WRITE = 1, V_ACCESS_REMOTE_WRITE = 2, V_ACCESS_REMOTE_READ = 4 };
enum { V_WR_RDMA_WRITE = 0, V_WR_SEND = 2, V_WR_RDMA_READ = 4 };
enum { V_SEND_SIGNALED = 2, V_SEND_SOLICITED = 4, V_SEND_INLINE = 8 };
enum {
	V_WC_SUCCESS = 0,
	V_WC_LOC_LEN_ERR = 1,
	V_WC_LOC_QP_OP_ERR = 2,
	V_WC_LOC_PROT_ERR = 4,
	V_WC_WR_FLUSH_ERR = 5,
	V_WC_LOC_ACCESS_ERR = 8,
	V_WC_REM_INV_REQ_ERR = 9,
	V_WC_REM_ACCESS_ERR = 10,
	V_WC_REM_OP_ERR = 11,
	V_WC_RETRY_EXC_ERR = 12,
	V_WC_RNR_RETRY_EXC_ERR = 13,
};
enum { V_WC_RECV = 128 }; // an opcode
enum {
	V_EVENT_CQ_ERR = 0,
	V_EVENT_QP_FATAL = 1,
	V_EVENT_QP_REQ_ERR = 2,
	V_EVENT_QP_ACCESS_ERR = 3,
	V_EVENT_DEVICE_FATAL = 8,
};
enum { V_QP_STATE = 1, V_QPS_ERR = 6 };
enum { V_QPT_RC = 2, V_NODE_RNIC = 4, V_PS_TCP = 0x0106 };
enum { V_OPTION_ID = 0, V_OPTION_ID_TOS = 0 };
enum {
	V_CM_ADDR_RESOLVED = 0,
	V_CM_ADDR_ERROR = 1,
	V_CM_ROUTE_RESOLVED = 2,
	V_CM_ROUTE_ERROR = 3,
	V_CM_CONNECT_REQUEST = 4,
	V_CM_CONNECT_ERROR = 6,
	V_CM_UNREACHABLE = 7,
	V_CM_REJECTED = 8,
	V_CM_ESTABLISHED = 9,
	V_CM_DISCONNECTED = 10,
	V_CM_DEVICE_REMOVAL = 11,
	V_CM_ADDR_CHANGE = 14,
};

struct v_cq;
struct v_qp;
struct v_wc;
struct v_send_wr;
struct v_recv_wr;

struct v_context_ops {
	void *unused1[11];
	int (*poll_cq)(struct v_cq *, int, struct v_wc *);
	int (*req_notify_cq)(struct v_cq *, int);
	void *unused2[12];
	int (*post_send)(struct v_qp *, struct v_send_wr *, struct v_send_wr **);
	int (*post_recv)(struct v_qp *, struct v_recv_wr *, struct v_recv_wr **);
	void *unused3[5];
};

struct v_device {
	void *ops[2];
	int node_type;
	int transport_type;
	char name[64];
};

struct v_context {
	struct v_device *device;
	struct v_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

struct v_pd {
	struct v_context *context;
	uint32_t handle;
};

struct v_mr {
	struct v_context *context;
	struct v_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct v_comp_channel {
	struct v_context *context;
	int fd;
	int refcnt;
};

struct v_cq {
	struct v_context *context;
	struct v_comp_channel *channel;
	void *cq_context;
};

struct v_qp {
	struct v_context *context;
	void *qp_context;
	struct v_pd *pd;
	struct v_cq *send_cq;
	struct v_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
};

struct v_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct v_qp_attr {
	int qp_state;
	char rest[140];
};

struct v_qp_init_attr {
	void *qp_context;
	struct v_cq *send_cq;
	struct v_cq *recv_cq;
	void *srq;
	struct v_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

struct v_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int unused[16];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct v_async_event {
	union {
		struct v_cq *cq;
		struct v_qp *qp;
		int port_num;
	} element;
	int event_type;
};

struct v_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct v_send_wr {
	uint64_t wr_id;
	struct v_send_wr *next;
	struct v_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm_data;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t unused[9];
};

struct v_recv_wr {
	uint64_t wr_id;
	struct v_recv_wr *next;
	struct v_sge *sg_list;
	int num_sge;
};

struct v_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct v_event_channel {
	int fd;
};

struct v_cm_id {
	struct v_context *verbs;
	struct v_event_channel *channel;
	void *context;
	struct v_qp *qp;
};

struct v_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct v_cm_event {
	struct v_cm_id *id;
	struct v_cm_id *listen_id;
	int event;
	int status;
	struct v_conn_param conn;
};

#endif
