//go:build linux && cgo

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static struct {
	struct v_device **(*ibv_get_device_list)(int *);
	void (*ibv_free_device_list)(struct v_device **);
	int (*ibv_query_device)(struct v_context *, struct v_device_attr *);
	struct v_pd *(*ibv_alloc_pd)(struct v_context *);
	int (*ibv_dealloc_pd)(struct v_pd *);
	struct v_mr *(*ibv_reg_mr)(struct v_pd *, void *, size_t, int);
	int (*ibv_dereg_mr)(struct v_mr *);
	struct v_comp_channel *(*ibv_create_comp_channel)(struct v_context *);
	int (*ibv_destroy_comp_channel)(struct v_comp_channel *);
	struct v_cq *(*ibv_create_cq)(struct v_context *, int, void *, struct v_comp_channel *, int);
	int (*ibv_destroy_cq)(struct v_cq *);
	int (*ibv_get_cq_event)(struct v_comp_channel *, struct v_cq **, void **);
	void (*ibv_ack_cq_events)(struct v_cq *, unsigned int);
	int (*ibv_query_qp)(struct v_qp *, struct v_qp_attr *, int, struct v_qp_init_attr *);
	int (*ibv_get_async_event)(struct v_context *, struct v_async_event *);
	void (*ibv_ack_async_event)(struct v_async_event *);
	struct v_event_channel *(*rdma_create_event_channel)(void);
	void (*rdma_destroy_event_channel)(struct v_event_channel *);
	int (*rdma_get_cm_event)(struct v_event_channel *, struct v_cm_event **);
	int (*rdma_ack_cm_event)(struct v_cm_event *);
	int (*rdma_create_id)(struct v_event_channel *, struct v_cm_id **, void *, int);
	int (*rdma_destroy_id)(struct v_cm_id *);
	int (*rdma_bind_addr)(struct v_cm_id *, struct sockaddr *);
	int (*rdma_listen)(struct v_cm_id *, int);
	uint16_t (*rdma_get_src_port)(struct v_cm_id *);
	int (*rdma_set_option)(struct v_cm_id *, int, int, void *, size_t);
	int (*rdma_resolve_addr)(struct v_cm_id *, struct sockaddr *, struct sockaddr *, int);
	int (*rdma_resolve_route)(struct v_cm_id *, int);
	int (*rdma_create_qp)(struct v_cm_id *, struct v_pd *, struct v_qp_init_attr *);
	void (*rdma_destroy_qp)(struct v_cm_id *);
	int (*rdma_connect)(struct v_cm_id *, struct v_conn_param *);
	int (*rdma_accept)(struct v_cm_id *, struct v_conn_param *);
	int (*rdma_reject)(struct v_cm_id *, const void *, uint8_t);
	int (*rdma_disconnect)(struct v_cm_id *);
	struct v_context **(*rdma_get_devices)(int *);
	void (*rdma_free_devices)(struct v_context **);
} f;

// The symbols, by library and version. libibverbs also has functions with the layouts of its first ABI,
// as IBVERBS_1.0, and dlsym could find those.
#define IBVERBS(name) {#name, 0, "IBVERBS_1.1", (void **)&f.name}
#define RDMACM(name) {#name, 1, "RDMACM_1.0", (void **)&f.name}
static const struct {
	const char *name;
	int library;
	const char *version;
	void **where;
} symbols[] = {
	IBVERBS(ibv_get_device_list),
	IBVERBS(ibv_free_device_list),
	IBVERBS(ibv_query_device),
	IBVERBS(ibv_alloc_pd),
	IBVERBS(ibv_dealloc_pd),
	IBVERBS(ibv_reg_mr),
	IBVERBS(ibv_dereg_mr),
	{"ibv_create_comp_channel", 0, "IBVERBS_1.0", (void **)&f.ibv_create_comp_channel},
	{"ibv_destroy_comp_channel", 0, "IBVERBS_1.0", (void **)&f.ibv_destroy_comp_channel},
	IBVERBS(ibv_create_cq),
	IBVERBS(ibv_destroy_cq),
	IBVERBS(ibv_get_cq_event),
	IBVERBS(ibv_ack_cq_events),
	IBVERBS(ibv_query_qp),
	IBVERBS(ibv_get_async_event),
	IBVERBS(ibv_ack_async_event),
	RDMACM(rdma_create_event_channel),
	RDMACM(rdma_destroy_event_channel),
	RDMACM(rdma_get_cm_event),
	RDMACM(rdma_ack_cm_event),
	RDMACM(rdma_create_id),
	RDMACM(rdma_destroy_id),
	RDMACM(rdma_bind_addr),
	RDMACM(rdma_listen),
	RDMACM(rdma_get_src_port),
	RDMACM(rdma_set_option),
	RDMACM(rdma_resolve_addr),
	RDMACM(rdma_resolve_route),
	RDMACM(rdma_create_qp),
	RDMACM(rdma_destroy_qp),
	RDMACM(rdma_connect),
	RDMACM(rdma_accept),
	RDMACM(rdma_reject),
	RDMACM(rdma_disconnect),
	RDMACM(rdma_get_devices),
	RDMACM(rdma_free_devices),
};

const char *v_load(void)
{
	static char why[512];
	static const char *const names[] = {"libibverbs.so.1", "librdmacm.so.1"};
	for (int i = 0; i < 2; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!library) {
			const char *text = dlerror();
			snprintf(why, sizeof why, "%s cannot be opened (%s); install rdma-core",
				names[i], text ? text : "no reason given");
			return why;
		}
		// This comes before librdmacm is opened, which would report an old libibverbs in
		// its own way.
		for (size_t k = 0; k < sizeof symbols / sizeof symbols[0]; k++) {
			if (symbols[k].library != i)
				continue;
#ifdef __GLIBC__
			*symbols[k].where = dlvsym(library, symbols[k].name, symbols[k].version);
#else
			*symbols[k].where = dlsym(library, symbols[k].name); // the newest
#endif
			if (!*symbols[k].where) {
				snprintf(why, sizeof why, "%s is too old: it has no %s of version %s; update rdma-core",
					names[i], symbols[k].name, symbols[k].version);
				return why;
			}
		}
	}
	return NULL;
}

// failed turns the -1 of most functions into errno.
static int failed(int result)
{
	if (result == 0)
		return 0;
	return errno ? errno : EIO;
}

int v_devices(void)
{
	int n = 0;
	errno = 0;
	struct v_device **list = f.ibv_get_device_list(&n);
	if (!list)
		return errno ? -errno : -ENODEV;
	f.ibv_free_device_list(list);
	return n;
}

int v_contexts(struct v_context **out, int most)
{
	int n = 0;
	struct v_context **list = f.rdma_get_devices(&n);
	if (!list)
		return 0;
	if (n > most)
		n = most;
	memcpy(out, list, n * sizeof *out);
	f.rdma_free_devices(list);
	return n;
}

int v_keep(struct v_context *c)
{
	int n = 0;
	errno = 0;
	struct v_context **list = f.rdma_get_devices(&n);
	if (!list)
		return failed(-1);
	for (int i = 0; i < n; i++)
		if (list[i] == c)
			return 0; // each entry is a reference, until the list is freed
	f.rdma_free_devices(list);
	return ENODEV; // it was removed
}

int v_create_event_channel(struct v_event_channel **c)
{
	errno = 0;
	*c = f.rdma_create_event_channel();
	return *c ? 0 : failed(-1);
}

void v_destroy_event_channel(struct v_event_channel *c) { f.rdma_destroy_event_channel(c); }

int v_next_cm_event(struct v_event_channel *c, struct v_cm_out *out)
{
	struct v_cm_event *ev;
	errno = 0;
	if (f.rdma_get_cm_event(c, &ev))
		return failed(-1);
	out->id = ev->id;
	out->context = (uint64_t)(uintptr_t)ev->id->context;
	out->event = ev->event;
	out->status = ev->status;
	out->private_len = 0;
	out->responder_resources = ev->conn.responder_resources;
	out->initiator_depth = ev->conn.initiator_depth;
	switch (ev->event) { // other events have no such data
	case V_CM_CONNECT_REQUEST:
		out->context = (uint64_t)(uintptr_t)ev->listen_id->context;
		// fall through
	case V_CM_ESTABLISHED:
	case V_CM_REJECTED:
		if (ev->conn.private_data) {
			out->private_len = ev->conn.private_data_len;
			memcpy(out->private_data, ev->conn.private_data, out->private_len);
		}
	}
	return failed(f.rdma_ack_cm_event(ev));
}

int v_create_id(struct v_event_channel *c, uint64_t context, struct v_cm_id **id)
{
	return failed(f.rdma_create_id(c, id, (void *)(uintptr_t)context, V_PS_TCP));
}

void v_set_context(struct v_cm_id *id, uint64_t context) { id->context = (void *)(uintptr_t)context; }
void v_destroy_id(struct v_cm_id *id) { f.rdma_destroy_id(id); }
int v_bind(struct v_cm_id *id, void *addr) { return failed(f.rdma_bind_addr(id, addr)); }
int v_listen(struct v_cm_id *id, int backlog) { return failed(f.rdma_listen(id, backlog)); }
uint16_t v_port(struct v_cm_id *id) { return ntohs(f.rdma_get_src_port(id)); }

int v_set_tos(struct v_cm_id *id, uint8_t tos)
{
	return failed(f.rdma_set_option(id, V_OPTION_ID, V_OPTION_ID_TOS, &tos, sizeof tos));
}

int v_resolve_addr(struct v_cm_id *id, void *from, void *to, int ms)
{
	return failed(f.rdma_resolve_addr(id, from, to, ms));
}

int v_resolve_route(struct v_cm_id *id, int ms) { return failed(f.rdma_resolve_route(id, ms)); }

static struct v_conn_param param(void *private_data, int len, int ird, int ord)
{
	// A message for which there is no receive buffer is a violation, so it is not sent again.
	return (struct v_conn_param){
		.private_data = private_data,
		.private_data_len = len,
		.responder_resources = ird,
		.initiator_depth = ord,
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 0,
	};
}

int v_connect(struct v_cm_id *id, void *private_data, int len, int ird, int ord)
{
	struct v_conn_param p = param(private_data, len, ird, ord);
	// siw connects its TCP socket in this call. A signal, as Go's runtime sends them, would
	// interrupt the call when the socket is connected, and the kernel would restart the call.
	// Then the address is in use, and siw's listener, which the first attempt had reached,
	// ends itself.
	sigset_t all, mask;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	int errnum = failed(f.rdma_connect(id, &p));
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return errnum;
}

int v_accept(struct v_cm_id *id, void *private_data, int len, int ird, int ord)
{
	struct v_conn_param p = param(private_data, len, ird, ord);
	return failed(f.rdma_accept(id, &p));
}

int v_reject(struct v_cm_id *id, void *private_data, int len)
{
	return failed(f.rdma_reject(id, private_data, len));
}

int v_disconnect(struct v_cm_id *id) { return failed(f.rdma_disconnect(id)); }

int v_query_device(struct v_context *c, struct v_device_attr *attr)
{
	return f.ibv_query_device(c, attr);
}

int v_open_end(struct v_end *e, struct v_cm_id *id, uint64_t context, int sends, int receives, int max_inline, int vector)
{
	struct v_context *c = id->verbs;
	e->id = id;
	errno = 0;
	if (!(e->pd = f.ibv_alloc_pd(c)) || !(e->channel = f.ibv_create_comp_channel(c)) ||
	    !(e->cq = f.ibv_create_cq(c, sends + receives, (void *)(uintptr_t)context, e->channel, vector)))
		return failed(-1);
	for (;; max_inline /= 2) {
		struct v_qp_init_attr attr = {
			.qp_context = (void *)(uintptr_t)context,
			.send_cq = e->cq,
			.recv_cq = e->cq,
			.cap = {sends, receives, 1, 1, max_inline},
			.qp_type = V_QPT_RC,
		};
		int error = failed(f.rdma_create_qp(id, e->pd, &attr));
		if (!error) {
			e->qp = id->qp;
			e->max_inline = attr.cap.max_inline_data;
			return 0;
		}
		if (error != EINVAL || !max_inline) // perhaps the device takes less inline
			return error;
	}
}

void v_destroy_qp(struct v_end *e)
{
	f.rdma_destroy_qp(e->id);
	e->qp = NULL;
}

void v_close_end(struct v_end *e)
{
	if (e->cq)
		f.ibv_destroy_cq(e->cq);
	if (e->channel)
		f.ibv_destroy_comp_channel(e->channel);
	if (e->pd)
		f.ibv_dealloc_pd(e->pd);
}

int v_reg_mr(struct v_pd *pd, uintptr_t addr, size_t len, int access, struct v_mr **mr)
{
	errno = 0;
	*mr = f.ibv_reg_mr(pd, (void *)addr, len, access);
	return *mr ? 0 : failed(-1);
}

int v_dereg_mr(struct v_mr *mr)
{
	errno = 0;
	int error = f.ibv_dereg_mr(mr);
	return error < 0 ? failed(-1) : error;
}

// How many work requests are handed to the device at once.
enum { CHAIN = 32 };

int v_post_send(struct v_end *e, struct v_send *work, int n)
{
	while (n > 0) {
		struct v_send_wr wrs[CHAIN], *bad;
		struct v_sge sges[CHAIN];
		int k = n < CHAIN ? n : CHAIN;
		for (int i = 0; i < k; i++) {
			sges[i] = (struct v_sge){work[i].addr, work[i].len, work[i].lkey};
			memset(&wrs[i], 0, sizeof wrs[i]);
			wrs[i].wr_id = work[i].wr_id;
			wrs[i].next = i + 1 < k ? &wrs[i + 1] : NULL;
			wrs[i].sg_list = &sges[i];
			wrs[i].num_sge = work[i].len > 0;
			wrs[i].opcode = work[i].opcode;
			wrs[i].send_flags = work[i].flags;
			wrs[i].remote_addr = work[i].remote;
			wrs[i].rkey = work[i].rkey;
		}
		int error = e->qp->context->ops.post_send(e->qp, wrs, &bad);
		if (error)
			return error < 0 ? -error : error; // some drivers return it negative, and do not set errno
		work += k;
		n -= k;
	}
	return 0;
}

int v_post_recv(struct v_end *e, struct v_recv *work, int n)
{
	while (n > 0) {
		struct v_recv_wr wrs[CHAIN], *bad;
		struct v_sge sges[CHAIN];
		int k = n < CHAIN ? n : CHAIN;
		for (int i = 0; i < k; i++) {
			sges[i] = (struct v_sge){work[i].addr, work[i].len, work[i].lkey};
			wrs[i] = (struct v_recv_wr){work[i].wr_id, i + 1 < k ? &wrs[i + 1] : NULL, &sges[i], 1};
		}
		int error = e->qp->context->ops.post_recv(e->qp, wrs, &bad);
		if (error)
			return error < 0 ? -error : error;
		work += k;
		n -= k;
	}
	return 0;
}

int v_poll(struct v_end *e, struct v_wc *wcs, int n)
{
	return e->cq->context->ops.poll_cq(e->cq, n, wcs);
}

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

int v_spin(struct v_end *e, struct v_wc *wcs, int n, int looks, const int32_t *stop)
{
	enum { YIELD = 32 }; // looks between two yields
	for (int i = 1;; i++) {
		int k = e->cq->context->ops.poll_cq(e->cq, n, wcs);
		if (k || i >= looks || __atomic_load_n(stop, __ATOMIC_RELAXED))
			return k;
		if (i % YIELD)
			pause_briefly();
		else
			sched_yield();
	}
}

int v_gave_up(struct v_end *e)
{
	struct v_qp_attr attr = {0};
	struct v_qp_init_attr init;
	return !f.ibv_query_qp(e->qp, &attr, V_QP_STATE, &init) && attr.qp_state == V_QPS_ERR;
}

int v_arm(struct v_end *e) { return e->cq->context->ops.req_notify_cq(e->cq, 0); }

int v_take_event(struct v_end *e)
{
	struct v_cq *cq;
	void *context;
	if (f.ibv_get_cq_event(e->channel, &cq, &context))
		return 0;
	f.ibv_ack_cq_events(e->cq, 1);
	return 1;
}

void v_drain_events(struct v_end *e)
{
	while (v_take_event(e))
		;
}

int v_next_async(struct v_context *c, int *type, uint64_t *context)
{
	struct v_async_event ev;
	errno = 0;
	if (f.ibv_get_async_event(c, &ev))
		return failed(-1);
	*type = ev.event_type;
	*context = 0;
	switch (ev.event_type) {
	case V_EVENT_CQ_ERR:
		*context = (uint64_t)(uintptr_t)ev.element.cq->cq_context;
		break;
	case V_EVENT_QP_FATAL:
	case V_EVENT_QP_REQ_ERR:
	case V_EVENT_QP_ACCESS_ERR:
		*context = (uint64_t)(uintptr_t)ev.element.qp->qp_context;
	}
	f.ibv_ack_async_event(&ev);
	return 0;
}
