// A model of libibverbs and librdmacm with one device and no network, for tests of what a real device
// seldom does. It is both libraries. The test is the network: it gives orders over the socket whose
// descriptor is in VERBS_FAKE; see obey. What is not ordered does not happen.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"

enum { QUEUE = 1024 };

struct cq {
	struct v_cq cq;
	struct v_wc wcs[QUEUE];
	unsigned head, tail;
	// As with mlx5, a request has the number of the events that were taken. The device ignores
	// one that has the number of the event that it sent last.
	int armed;
	unsigned taken, sent; // sent: the number of the last event, plus 1
};

struct qp {
	struct v_qp qp;
	struct cq *cq;
	int state;
	uint64_t receives[QUEUE];
	unsigned head, tail;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct v_device device = {.node_type = 1, .name = "fake0"};
static struct v_context context = {.device = &device, .num_comp_vectors = 1};
static int async_pipe[2], cm_pipe[2], completion_pipe;
static struct qp *newest; // queue pair
static struct v_cm_id *listener, *asked, *accepted;
static struct v_cm_event events[QUEUE];
static unsigned events_head, events_tail;
static struct v_async_event async;
static char reason[256] = "none"; // of the last rejection

// What tests read and set.
static int event_us;     // how long an event takes from the device to the channel
static int cm_us;        // how long rdma_get_cm_event uses the queue pair
static int cm_errno;     // with which rdma_get_cm_event fails,
static int cm_failures;  // this often
static int dereg_errno;  // with which ibv_dereg_mr fails
static int disconnects, cm_using, cm_events, torn, rejections, connects, qps, regions;
static int refuse; // the error of every post

static struct {
	const char *name;
	int *value;
} values[] = {
	{"event_us", &event_us}, {"cm_us", &cm_us}, {"cm_errno", &cm_errno}, {"cm_failures", &cm_failures},
	{"dereg_errno", &dereg_errno}, {"disconnects", &disconnects}, {"cm_using", &cm_using}, {"cm_events", &cm_events}, {"torn", &torn},
	{"rejections", &rejections}, {"connects", &connects}, {"qps", &qps}, {"regions", &regions},
	{"node_type", &device.node_type}, {"refuse", &refuse},
};

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

static void tell(int fd, const void *what, size_t size)
{
	if (write(fd, what, size) != (ssize_t)size)
		abort();
}

static void queue_cm(struct v_cm_id *id, int kind)
{
	lock();
	events[events_tail++ % QUEUE] = (struct v_cm_event){.id = id, .event = kind};
	unlock();
	tell(cm_pipe[1], "", 1);
}

// complete adds a completion, and sends an event if one was requested.
static void complete(struct cq *cq, struct v_wc wc)
{
	lock();
	cq->wcs[cq->tail++ % QUEUE] = wc;
	int send = cq->armed, us = event_us;
	if (send) {
		cq->armed = 0;
		cq->sent = cq->taken + 1;
	}
	unlock();
	if (send) {
		usleep(us);
		tell(completion_pipe, &cq, sizeof cq);
	}
}

// request is a peer's, with its private data in hexadecimal digits.
static void request(const char *digits)
{
	unsigned char *said = calloc(1, 64);
	struct v_cm_id *id = calloc(1, sizeof *id);
	*id = *listener;
	size_t n = 0;
	for (unsigned byte; n < 64 && sscanf(digits + 2 * n, "%2x", &byte) == 1; n++)
		said[n] = byte;
	lock();
	events[events_tail++ % QUEUE] = (struct v_cm_event){.id = id, .listen_id = listener,
		.event = V_CM_CONNECT_REQUEST, .conn = {.private_data = said, .private_data_len = n}};
	unlock();
	tell(cm_pipe[1], "", 1);
}

// obey executes an order of the test, and writes the answer.
static void obey(FILE *out, const char *order, const char *word, int number)
{
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		if (strcmp(word, values[i].name))
			continue;
		if (!strcmp(order, "set"))
			__atomic_store_n(values[i].value, number, __ATOMIC_SEQ_CST);
		fprintf(out, "%d\n", __atomic_load_n(values[i].value, __ATOMIC_SEQ_CST));
		return;
	}
	if (!strcmp(order, "receive")) { // a message that has a length
		lock();
		struct qp *qp = newest;
		uint64_t id = qp->receives[qp->head++ % QUEUE];
		unlock();
		complete(qp->cq, (struct v_wc){.wr_id = id, .opcode = V_WC_RECV, .byte_len = number});
	} else if (!strcmp(order, "request")) {
		request(word);
	} else if (!strcmp(order, "establish")) { // the id that was accepted or connected last
		queue_cm(!strcmp(word, "accepted") ? accepted : asked, V_CM_ESTABLISHED);
	} else if (!strcmp(order, "async")) { // an asynchronous event of the newest queue pair
		lock();
		async.event_type = number;
		async.element.qp = &newest->qp;
		if (number == V_EVENT_CQ_ERR)
			async.element.cq = &newest->cq->cq;
		unlock();
		tell(async_pipe[1], "", 1);
	} else if (!strcmp(order, "poke")) { // wake up whoever waits for events of rdma_cm
		tell(cm_pipe[1], "", 1);
	} else if (!strcmp(order, "reason")) {
		fprintf(out, "%s\n", reason);
		return;
	} else {
		abort();
	}
	fprintf(out, "0\n");
}

static void *orders(void *arg)
{
	int fd = (int)(intptr_t)arg;
	FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
	char order[32], word[256];
	int number;
	while (fscanf(in, "%31s %255s %d", order, word, &number) == 3) {
		obey(out, order, word, number);
		fflush(out);
	}
	return NULL;
}

static int f_poll(struct v_cq *c, int n, struct v_wc *wcs)
{
	struct cq *cq = (struct cq *)c;
	int k = 0;
	lock();
	while (k < n && cq->head != cq->tail)
		wcs[k++] = cq->wcs[cq->head++ % QUEUE];
	unlock();
	return k;
}

static int f_arm(struct v_cq *c, int solicited)
{
	struct cq *cq = (struct cq *)c;
	lock();
	int heard = cq->sent != cq->taken + 1, send = heard && cq->head != cq->tail;
	if (heard)
		cq->armed = !send;
	if (send)
		cq->sent = cq->taken + 1;
	unlock();
	if (send)
		tell(completion_pipe, &cq, sizeof cq);
	return 0;
}

static int f_send(struct v_qp *q, struct v_send_wr *wr, struct v_send_wr **bad)
{
	if (refuse)
		return -refuse;
	for (; wr; wr = wr->next)
		if (wr->send_flags & V_SEND_SIGNALED)
			complete(((struct qp *)q)->cq, (struct v_wc){.wr_id = wr->wr_id});
	return 0;
}

static int f_receive(struct v_qp *q, struct v_recv_wr *wr, struct v_recv_wr **bad)
{
	struct qp *qp = (struct qp *)q;
	if (refuse)
		return -refuse;
	lock();
	for (; wr; wr = wr->next)
		qp->receives[qp->tail++ % QUEUE] = wr->wr_id;
	unlock();
	return 0;
}

__attribute__((constructor)) static void begin(void)
{
	const char *fd = getenv("VERBS_FAKE");
	pthread_t thread;
	if (!fd || pipe2(async_pipe, O_CLOEXEC))
		abort();
	context.ops.poll_cq = f_poll;
	context.ops.req_notify_cq = f_arm;
	context.ops.post_send = f_send;
	context.ops.post_recv = f_receive;
	context.async_fd = async_pipe[0];
	fcntl(async_pipe[0], F_SETFL, O_NONBLOCK);
	pthread_create(&thread, NULL, orders, (void *)(intptr_t)atoi(fd));
}

// libibverbs

struct v_device **ibv_get_device_list(int *n)
{
	static struct v_device *all[] = {&device, NULL};
	*n = 1;
	return all;
}

void ibv_free_device_list(struct v_device **all) {}

int ibv_query_device(struct v_context *c, struct v_device_attr *attr)
{
	*attr = (struct v_device_attr){.max_qp_wr = QUEUE, .max_cqe = QUEUE, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16};
	return 0;
}

struct v_pd *ibv_alloc_pd(struct v_context *c)
{
	struct v_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	return pd;
}

int ibv_dealloc_pd(struct v_pd *pd) { return 0; }

struct v_mr *ibv_reg_mr(struct v_pd *pd, void *at, size_t size, int access)
{
	static uint32_t key;
	struct v_mr *mr = calloc(1, sizeof *mr);
	lock();
	*mr = (struct v_mr){.context = pd->context, .pd = pd, .addr = at, .length = size, .lkey = ++key, .rkey = key};
	regions++;
	unlock();
	return mr;
}

int ibv_dereg_mr(struct v_mr *mr)
{
	lock();
	int error = dereg_errno;
	if (!error)
		regions--;
	unlock();
	if (!error)
		free(mr);
	return error;
}

struct v_comp_channel *ibv_create_comp_channel(struct v_context *c)
{
	struct v_comp_channel *channel = calloc(1, sizeof *channel);
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		abort();
	*channel = (struct v_comp_channel){.context = c, .fd = ends[0]};
	completion_pipe = ends[1]; // of the newest queue pair
	return channel;
}

int ibv_destroy_comp_channel(struct v_comp_channel *channel) { return close(channel->fd); }

struct v_cq *ibv_create_cq(struct v_context *c, int n, void *of, struct v_comp_channel *channel, int vector)
{
	struct cq *cq = calloc(1, sizeof *cq);
	cq->cq = (struct v_cq){.context = c, .channel = channel, .cq_context = of};
	return &cq->cq;
}

int ibv_destroy_cq(struct v_cq *cq) { return 0; }

int ibv_get_cq_event(struct v_comp_channel *channel, struct v_cq **cq, void **of)
{
	if (read(channel->fd, cq, sizeof *cq) != sizeof *cq)
		return -1;
	lock();
	((struct cq *)*cq)->taken++;
	unlock();
	*of = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct v_cq *cq, unsigned int n) {}

int ibv_query_qp(struct v_qp *qp, struct v_qp_attr *attr, int mask, struct v_qp_init_attr *init)
{
	attr->qp_state = ((struct qp *)qp)->state;
	return 0;
}

int ibv_get_async_event(struct v_context *c, struct v_async_event *event)
{
	char byte;
	if (read(c->async_fd, &byte, 1) != 1)
		return -1;
	lock();
	*event = async;
	unlock();
	return 0;
}

void ibv_ack_async_event(struct v_async_event *event) {}

// librdmacm

struct v_event_channel *rdma_create_event_channel(void)
{
	struct v_event_channel *channel = calloc(1, sizeof *channel);
	if (pipe2(cm_pipe, O_CLOEXEC))
		abort();
	channel->fd = cm_pipe[0];
	return channel;
}

void rdma_destroy_event_channel(struct v_event_channel *channel)
{
	close(cm_pipe[0]);
	close(cm_pipe[1]);
}

int rdma_get_cm_event(struct v_event_channel *channel, struct v_cm_event **event)
{
	char byte;
	lock();
	int error = cm_failures ? cm_errno : 0;
	if (error && cm_failures > 0)
		cm_failures--;
	unlock();
	if (error) {
		errno = error;
		return -1;
	}
	if (read(channel->fd, &byte, 1) != 1)
		return -1;
	lock();
	int none = events_head == events_tail;
	struct v_cm_event *e = malloc(sizeof *e);
	if (!none)
		*e = events[events_head++ % QUEUE];
	unlock();
	if (none) {
		errno = EAGAIN;
		return -1;
	}
	if (e->event == V_CM_ESTABLISHED) { // it modifies the queue pair
		struct v_qp *qp = e->id->qp;
		__atomic_add_fetch(&cm_using, 1, __ATOMIC_SEQ_CST);
		usleep(cm_us);
		if (qp != __atomic_load_n(&e->id->qp, __ATOMIC_SEQ_CST))
			torn++;
	}
	__atomic_add_fetch(&cm_events, 1, __ATOMIC_SEQ_CST);
	*event = e;
	return 0;
}

int rdma_ack_cm_event(struct v_cm_event *event)
{
	free(event);
	return 0;
}

int rdma_create_id(struct v_event_channel *channel, struct v_cm_id **id, void *of, int space)
{
	*id = calloc(1, sizeof **id);
	(*id)->channel = channel;
	(*id)->context = of;
	return 0;
}

int rdma_destroy_id(struct v_cm_id *id) { return 0; }

int rdma_bind_addr(struct v_cm_id *id, struct sockaddr *at)
{
	id->verbs = &context;
	return 0;
}

int rdma_listen(struct v_cm_id *id, int backlog)
{
	listener = id;
	return 0;
}

uint16_t rdma_get_src_port(struct v_cm_id *id) { return 7; }
int rdma_set_option(struct v_cm_id *id, int level, int name, void *value, size_t size) { return 0; }

int rdma_resolve_addr(struct v_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
	id->verbs = &context;
	queue_cm(id, V_CM_ADDR_RESOLVED);
	return 0;
}

int rdma_resolve_route(struct v_cm_id *id, int ms)
{
	queue_cm(id, V_CM_ROUTE_RESOLVED);
	return 0;
}

int rdma_create_qp(struct v_cm_id *id, struct v_pd *pd, struct v_qp_init_attr *attr)
{
	struct qp *qp = calloc(1, sizeof *qp);
	qp->qp = (struct v_qp){.context = &context, .qp_context = attr->qp_context, .pd = pd};
	qp->cq = (struct cq *)attr->recv_cq;
	lock();
	id->qp = &qp->qp;
	newest = qp;
	qps++;
	unlock();
	return 0;
}

void rdma_destroy_qp(struct v_cm_id *id)
{
	lock();
	__atomic_store_n(&id->qp, NULL, __ATOMIC_SEQ_CST);
	qps--;
	unlock();
}

int rdma_connect(struct v_cm_id *id, struct v_conn_param *param)
{
	asked = id;
	__atomic_add_fetch(&connects, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int rdma_accept(struct v_cm_id *id, struct v_conn_param *param)
{
	accepted = id;
	__atomic_add_fetch(&connects, 1, __ATOMIC_SEQ_CST);
	return 0;
}

int rdma_reject(struct v_cm_id *id, const void *text, uint8_t size)
{
	lock();
	memcpy(reason, text, size);
	reason[size] = 0;
	rejections++;
	unlock();
	return 0;
}

int rdma_disconnect(struct v_cm_id *id)
{
	lock();
	if (id->qp)
		((struct qp *)id->qp)->state = V_QPS_ERR;
	disconnects++;
	unlock();
	return 0;
}

struct v_context **rdma_get_devices(int *n)
{
	static struct v_context *all[] = {&context, NULL};
	*n = 1;
	return all;
}

void rdma_free_devices(struct v_context **all) {}
