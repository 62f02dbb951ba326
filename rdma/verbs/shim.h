// What package verbs calls: the functions of the two libraries, which are opened at run time, and a few
// loops that would otherwise take a call from Go for each iteration. A result of type int is 0 or an
// errno unless stated otherwise.
#ifndef GOSDP_VERBS_SHIM_H
#define GOSDP_VERBS_SHIM_H

#include "abi.h"

// v_load opens the libraries, and returns NULL or what is missing. It is called once.
const char *v_load(void);

// v_devices returns how many RDMA devices there are, or minus an errno.
int v_devices(void);

// v_contexts returns how many devices librdmacm has opened, at most most of them. It closes a removed
// device on which there is no id, unless v_keep has kept it.
int v_contexts(struct v_context **out, int most);

// v_keep makes librdmacm keep a device open until the process ends. There must be an id on it.
int v_keep(struct v_context *c);

// An event of rdma_cm, copied and acknowledged.
struct v_cm_out {
	struct v_cm_id *id;
	uint64_t context; // of the id, or of the listening id
	int event;
	int status;
	int private_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t private_data[256];
};

int v_create_event_channel(struct v_event_channel **c);
void v_destroy_event_channel(struct v_event_channel *c);
int v_next_cm_event(struct v_event_channel *c, struct v_cm_out *out);

int v_create_id(struct v_event_channel *c, uint64_t context, struct v_cm_id **id);
void v_set_context(struct v_cm_id *id, uint64_t context);
void v_destroy_id(struct v_cm_id *id);
int v_bind(struct v_cm_id *id, void *addr);
int v_listen(struct v_cm_id *id, int backlog);
uint16_t v_port(struct v_cm_id *id); // in the machine's byte order
int v_set_tos(struct v_cm_id *id, uint8_t tos);
int v_resolve_addr(struct v_cm_id *id, void *from, void *to, int ms);
int v_resolve_route(struct v_cm_id *id, int ms);
int v_connect(struct v_cm_id *id, void *private_data, int len, int ird, int ord);
int v_accept(struct v_cm_id *id, void *private_data, int len, int ird, int ord);
int v_reject(struct v_cm_id *id, void *private_data, int len);
int v_disconnect(struct v_cm_id *id);

// The verbs side of a queue pair.
struct v_end {
	struct v_cm_id *id;
	struct v_pd *pd;
	struct v_comp_channel *channel;
	struct v_cq *cq;
	struct v_qp *qp;
	uint32_t max_inline;
};

int v_query_device(struct v_context *c, struct v_device_attr *attr);
int v_open_end(struct v_end *e, struct v_cm_id *id, uint64_t context, int sends, int receives, int max_inline, int vector);
void v_destroy_qp(struct v_end *e); // not beside v_next_cm_event, which uses queue pairs
void v_close_end(struct v_end *e);  // after v_destroy_qp, if there was a queue pair

int v_reg_mr(struct v_pd *pd, uintptr_t addr, size_t len, int access, struct v_mr **mr);
int v_dereg_mr(struct v_mr *mr);

// One work request for the send queue.
struct v_send {
	uint64_t wr_id;
	uint64_t addr;
	uint64_t remote;
	uint32_t len; // 0: no memory
	uint32_t lkey;
	uint32_t rkey;
	uint16_t opcode;
	uint16_t flags;
};

// A receive buffer to post.
struct v_recv {
	uint64_t wr_id;
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

int v_post_send(struct v_end *e, struct v_send *work, int n);
int v_post_recv(struct v_end *e, struct v_recv *work, int n);
int v_poll(struct v_end *e, struct v_wc *wcs, int n); // how many, or negative

// v_spin repeats v_poll until something has completed or *stop is not 0. It yields the processor now and
// then: what it waits for may need a thread that has none.
int v_spin(struct v_end *e, struct v_wc *wcs, int n, int looks, const int32_t *stop);
int v_arm(struct v_end *e);
int v_gave_up(struct v_end *e);    // whether the queue pair is in the error state
int v_take_event(struct v_end *e); // 1, or 0: there was none
void v_drain_events(struct v_end *e);

// v_next_async takes an asynchronous event. *context is that of the queue pair or the completion queue,
// or 0 if the event is about neither.
int v_next_async(struct v_context *c, int *type, uint64_t *context);

#endif
