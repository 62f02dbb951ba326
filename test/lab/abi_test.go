package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// abi maps structures and fields of rdma/verbs to those of the headers. A field has two
// names if they differ. A structure is shorter than the header's if this project does not
// use its last fields.
var abi = []struct {
	ours, theirs string
	shorter      bool
	fields       string
}{
	{"v_context_ops", "ibv_context_ops", false, "poll_cq req_notify_cq post_send post_recv"},
	{"v_device", "ibv_device", true, "node_type transport_type name"},
	{"v_context", "ibv_context", true, "device ops cmd_fd async_fd num_comp_vectors"},
	{"v_pd", "ibv_pd", false, "context handle"},
	{"v_mr", "ibv_mr", false, "context pd addr length handle lkey rkey"},
	{"v_comp_channel", "ibv_comp_channel", false, "context fd refcnt"},
	{"v_cq", "ibv_cq", true, "context channel cq_context"},
	{"v_qp", "ibv_qp", true, "context qp_context pd send_cq recv_cq srq handle qp_num"},
	{"v_qp_cap", "ibv_qp_cap", false, "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data"},
	{"v_qp_init_attr", "ibv_qp_init_attr", false, "qp_context send_cq recv_cq srq cap qp_type sq_sig_all"},
	{"v_qp_attr", "ibv_qp_attr", false, "qp_state"},
	{"v_device_attr", "ibv_device_attr", false, "max_qp_wr max_cqe max_qp_rd_atom max_qp_init_rd_atom max_pkeys phys_port_cnt"},
	{"v_async_event", "ibv_async_event", false, "element.cq element.qp element.port_num event_type"},
	{"v_sge", "ibv_sge", false, "addr length lkey"},
	{"v_send_wr", "ibv_send_wr", false, "wr_id next sg_list num_sge opcode send_flags imm_data remote_addr=wr.rdma.remote_addr rkey=wr.rdma.rkey"},
	{"v_recv_wr", "ibv_recv_wr", false, "wr_id next sg_list num_sge"},
	{"v_wc", "ibv_wc", false, "wr_id status opcode vendor_err byte_len imm_data qp_num src_qp wc_flags pkey_index slid sl dlid_path_bits"},
	{"v_event_channel", "rdma_event_channel", false, "fd"},
	{"v_cm_id", "rdma_cm_id", true, "verbs channel context qp"},
	{"v_conn_param", "rdma_conn_param", false, "private_data private_data_len responder_resources initiator_depth flow_control retry_count rnr_retry_count srq qp_num"},
	{"v_cm_event", "rdma_cm_event", true, "id listen_id event status conn=param.conn"},
}

// constants maps the prefixes of constants in rdma/verbs to those in the headers.
var constants = map[string]string{
	"V_ACCESS_": "IBV_ACCESS_: LOCAL_WRITE REMOTE_WRITE REMOTE_READ",
	"V_WR_":     "IBV_WR_: RDMA_WRITE SEND RDMA_READ",
	"V_SEND_":   "IBV_SEND_: SIGNALED SOLICITED INLINE",
	"V_WC_":     "IBV_WC_: SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR RECV",
	"V_EVENT_":  "IBV_EVENT_: CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR DEVICE_FATAL",
	"V_QP_":     "IBV_QP_: STATE",
	"V_QPS_":    "IBV_QPS_: ERR",
	"V_QPT_":    "IBV_QPT_: RC",
	"V_NODE_":   "IBV_NODE_: RNIC",
	"V_PS_":     "RDMA_PS_: TCP",
	"V_CM_":     "RDMA_CM_EVENT_: ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_ERROR UNREACHABLE REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL ADDR_CHANGE",
}

// TestABI compares the declarations with the installed headers. It only compiles and runs
// nothing.
func TestABI(t *testing.T) {
	if os.Getenv("GOSDP_LAB") == "" {
		t.Skip("missing: GOSDP_LAB, the directory of the RDMA lab, whose setup.sh installs the headers")
	}
	require.NoError(t, compile(abiProgram("")))
	err := compile(abiProgram("_Static_assert(sizeof(struct v_wc) == sizeof(struct ibv_send_wr), \"wrong\");\n"))
	assert.ErrorContains(t, err, "wrong", "the comparison does not notice a difference")
}

// compile checks a program with the compiler.
func compile(program string) error {
	compiler := exec.Command("gcc", "-fsyntax-only", "-Wno-pointer-to-int-cast", "-I", "../../rdma/verbs", "-x", "c", "-")
	compiler.Stdin = strings.NewReader(program)
	if output, err := compiler.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

func abiProgram(more string) string {
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include \"abi.h\"\n")
	require := func(what string) { fmt.Fprintf(&b, "_Static_assert(%s, %q);\n", what, what) }
	for _, s := range abi {
		compare := "=="
		if s.shorter {
			compare = "<="
		}
		require(fmt.Sprintf("sizeof(struct %s) %s sizeof(struct %s)", s.ours, compare, s.theirs))
		for _, field := range strings.Fields(s.fields) {
			ours, theirs, two := strings.Cut(field, "=")
			if !two {
				theirs = ours
			}
			require(fmt.Sprintf("offsetof(struct %s, %s) == offsetof(struct %s, %s)", s.ours, ours, s.theirs, theirs))
			require(fmt.Sprintf("sizeof(((struct %s *)0)->%s) == sizeof(((struct %s *)0)->%s)", s.ours, ours, s.theirs, theirs))
		}
	}
	for prefix, list := range constants {
		theirs, names, _ := strings.Cut(list, ":")
		for _, name := range strings.Fields(names) {
			require(fmt.Sprintf("%s%s == (int)%s%s", prefix, name, theirs, name))
		}
	}
	b.WriteString(more)
	return b.String()
}
