package dissect

import (
	"bytes"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of an MPA frame.
type Kind uint8

const (
	Request Kind = iota
	Reply
	FPDU
)

// CRC is tshark's verdict on an FPDU's CRC.
type CRC uint8

const (
	Unused CRC = iota // neither end asked for CRCs
	Good
	Bad
)

// Frame is an MPA frame as decoded by tshark.
type Frame struct {
	Client bool // sent by the end that dialled
	Kind   Kind

	// In a Request or Reply.
	Markers, WantCRC, Rejected bool
	Revision                   int
	Private                    []byte

	// In an FPDU.
	ULPDU int // its length in bytes
	CRC   CRC
	Segment
}

// Segment is the DDP segment in an FPDU, RFC 5041 §4 and RFC 5040 §4.
type Segment struct {
	Tagged, Last bool
	Opcode       uint8
	STag         uint32 // tagged: of the buffer; untagged: to invalidate
	TO           uint64 // tagged: offset in the buffer
	QN, MSN, MO  uint32 // untagged: queue, message, offset in it
	Payload      []byte // of Sends, Writes and Read Responses
	Read         *ReadRequest
	Terminate    *Terminate
}

// ReadRequest is an RDMA Read Request, RFC 5040 §4.4.
type ReadRequest struct {
	SinkSTag uint32
	SinkTO   uint64
	Size     uint32
	SrcSTag  uint32
	SrcTO    uint64
}

// Terminate is a Terminate, RFC 5040 §4.8.
type Terminate struct {
	Layer, Type, Code uint8
	M, D, R           bool
	Length            int // of the offending segment, if D
	// Headers is the start of the offending segment. tshark 4.0 shows its first 14
	// bytes, and with R 28 more, whatever the length of the headers is.
	Headers []byte
}

// arguments are tshark's arguments. The MPA dissector recognises connections by their first
// bytes. The dissectors of protocols that others carry in Sends are disabled, and so is the
// reassembly of Sends.
var arguments = []string{
	"-n",
	"-o", "tcp.try_heuristic_first:TRUE",
	"-o", "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE",
	"--disable-protocol", "rpcordma",
	"--disable-protocol", "smb_direct",
	"-T", "pdml",
}

// dissect decodes a file with one connection to port and returns its MPA frames, in the
// order in which their last bytes were captured. It fails if tshark finds anything
// malformed, or if bytes of the connection are not part of a frame.
func dissect(file string, port int) ([]Frame, error) {
	tshark := exec.Command("tshark", append([]string{"-r", file}, arguments...)...)
	var stderr bytes.Buffer
	tshark.Stderr = &stderr
	out, err := tshark.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark: %w: %s", err, stderr.Bytes())
	}
	return parse(bytes.NewReader(out), port)
}

// Packet is a TCP packet.
type Packet struct {
	ToServer bool
	Flags    string // TCP flags in tshark's notation: "0x0012" is SYN and ACK
	Len      int    // bytes of payload
	Marks    string // the IP header fields and TCP options that a program can set
}

// packets decodes a file with connections to port.
func packets(file string, port int) (all []Packet, err error) {
	fields := []string{"tcp.dstport", "tcp.flags", "tcp.len", "ip.dsfield", "ip.flags", "ip.ttl", "ip.opt.type", "tcp.option_kind"}
	arguments := []string{"-r", file, "-T", "fields", "-Y", "tcp"}
	for _, f := range fields {
		arguments = append(arguments, "-e", f)
	}
	out, err := exec.Command("tshark", arguments...).Output()
	if err != nil {
		return nil, fmt.Errorf("tshark: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "\t", 4)
		if len(f) != 4 {
			return nil, fmt.Errorf("tshark: %q", line)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			return nil, fmt.Errorf("tshark: %q", line)
		}
		all = append(all, Packet{ToServer: f[0] == strconv.Itoa(port), Flags: f[1], Len: n, Marks: f[3]})
	}
	return all, nil
}

// reader consumes the elements of tshark's PDML in order. Each protocol of a packet is a
// <proto>, and each of its fields a <field>, in the order of the bytes.
type reader struct {
	port   int
	frames []Frame
	err    error // the first error in an element

	packet   string            // its number
	client   bool              // it was sent by the end that dialled
	seq, len int               // its bytes on the connection
	expert   string            // the last expert info
	ip, tcp  string            // its headers, in words
	streams  map[string]string // of each connection, its first packet
	sent     [2]int            // bytes on the connection, from the server and the client
	framed   [2]int            // of those, in frames
}

func parse(pdml io.Reader, port int) ([]Frame, error) {
	r := &reader{port: port, streams: make(map[string]string)}
	d := xml.NewDecoder(pdml)
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("tshark's PDML: %w", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			a := make(map[string]string, len(e.Attr))
			for _, attr := range e.Attr {
				a[attr.Name.Local] = attr.Value
			}
			if e.Name.Local == "proto" {
				r.proto(a)
			} else {
				r.field(a)
			}
		case xml.EndElement:
			if e.Name.Local == "packet" && r.len > 0 {
				side := index(r.client)
				r.sent[side] = max(r.sent[side], r.seq+r.len-1) // the SYN counts too
			}
		}
		if r.err != nil {
			return nil, fmt.Errorf("packet %s: %w", r.packet, r.err)
		}
	}
	switch {
	case len(r.streams) != 1:
		return nil, fmt.Errorf("%d connections instead of one: %q", len(r.streams), slices.Sorted(maps.Values(r.streams)))
	case r.sent != r.framed:
		return nil, fmt.Errorf("the server sent %d bytes, %d of them in MPA frames; the client sent %d, %d of them in MPA frames",
			r.sent[0], r.framed[0], r.sent[1], r.framed[1])
	}
	return r.frames, nil
}

func index(client bool) int {
	if client {
		return 1
	}
	return 0
}

// proto handles the start of a protocol's part of a packet.
func (r *reader) proto(a map[string]string) {
	switch name := a["name"]; {
	case name == "iwarp_mpa":
		r.frames = append(r.frames, Frame{Client: r.client})
		r.framed[index(r.client)] += r.number(a["size"], 0)
	case name == "ip" || name == "ipv6":
		r.ip = a["showname"]
	case name == "tcp":
		r.tcp = a["showname"]
	case strings.HasPrefix(name, "_ws."): // malformed, short, unreassembled
		r.err = errors.New(a["showname"])
	}
}

// field handles a field of any protocol.
func (r *reader) field(a map[string]string) {
	switch a["name"] {
	case "num":
		r.packet, r.seq, r.len = a["show"], 0, 0
	case "tcp.dstport":
		r.client = r.number(a["show"], 16) == r.port
	case "tcp.stream":
		if _, known := r.streams[a["show"]]; !known {
			r.streams[a["show"]] = fmt.Sprintf("packet %s, %s, %s", r.packet, r.ip, r.tcp)
		}
	case "tcp.seq":
		r.seq = r.number(a["show"], 0)
	case "tcp.len":
		r.len = r.number(a["show"], 0)
	case "_ws.expert":
		r.expert = a["showname"]
	case "_ws.expert.severity":
		const severe = 0x800000
		if r.number(a["show"], 0) >= severe {
			r.err = errors.New(r.expert)
		}
	default:
		if len(r.frames) > 0 {
			r.iwarpField(&r.frames[len(r.frames)-1], a)
		}
	}
}

// iwarpField handles a field of MPA, DDP or RDMAP, or of their payload.
func (r *reader) iwarpField(f *Frame, a map[string]string) {
	show := a["show"]
	switch a["name"] {
	case "iwarp_mpa.req":
		f.Kind = Request
	case "iwarp_mpa.rep":
		f.Kind = Reply
	case "iwarp_mpa.fpdu":
		f.Kind = FPDU
	case "iwarp_mpa.marker_flag":
		f.Markers = r.flag(show)
	case "iwarp_mpa.crc_flag":
		f.WantCRC = r.flag(show)
	case "iwarp_mpa.rej_flag":
		f.Rejected = r.flag(show)
	case "iwarp_mpa.rev":
		f.Revision = r.number(show, 8)
	case "iwarp_mpa.privatedata":
		f.Private = r.bytes(a)
	case "iwarp_mpa.pdlength":
		if show == "0" {
			f.Private = []byte{}
		}
	case "iwarp_mpa.ulpdulength":
		f.ULPDU = r.number(show, 16)
	case "iwarp_mpa.pad":
		r.zero(a)
	case "iwarp_mpa.crc":
		r.zero(a)
	case "iwarp_mpa.crc_check":
		f.CRC = Bad
		if strings.Contains(a["showname"], "Good CRC32") {
			f.CRC = Good
		}

	case "iwarp_ddp.tagged_flag":
		f.Tagged = r.flag(show)
	case "iwarp_ddp.last_flag":
		f.Last = r.flag(show)
	case "iwarp_ddp.rsvd", "iwarp_rdma.rsv", "iwarp_rdma.term_rsvd":
		r.zero(a)
	case "iwarp_ddp.dv", "iwarp_rdma.version":
		if show != "1" {
			r.err = errors.New(a["showname"])
		}
	case "iwarp_ddp.stag", "iwarp_rdma.inval_stag":
		f.STag = uint32(r.number(show, 32))
	case "iwarp_rdma.reserved": // in messages that invalidate no STag
		r.zero(a)
	case "iwarp_ddp.tagged_offset":
		f.TO = r.wide(show)
	case "iwarp_ddp.qn":
		f.QN = uint32(r.number(show, 32))
	case "iwarp_ddp.msn":
		f.MSN = uint32(r.number(show, 32))
	case "iwarp_ddp.mo":
		f.MO = uint32(r.number(show, 32))
	case "iwarp_rdma.opcode":
		f.Opcode = uint8(r.number(show, 8))
	case "data.data":
		f.Payload = append(f.Payload, r.bytes(a)...)

	case "iwarp_rdma.rr":
		f.Read = new(ReadRequest)
	case "iwarp_rdma.sinkstag":
		f.Read.SinkSTag = uint32(r.number(show, 32))
	case "iwarp_rdma.sinkto":
		f.Read.SinkTO = r.wide(show)
	case "iwarp_rdma.rdmardsz":
		f.Read.Size = uint32(r.number(show, 32))
	case "iwarp_rdma.srcstag":
		f.Read.SrcSTag = uint32(r.number(show, 32))
	case "iwarp_rdma.srcto":
		f.Read.SrcTO = r.wide(show)

	case "iwarp_rdma.terminate":
		f.Terminate = new(Terminate)
	case "iwarp_rdma.term_layer":
		f.Terminate.Layer = uint8(r.number(show, 8))
	case "iwarp_rdma.term_etype", "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_etype_ddp", "iwarp_rdma.term_etype_llp":
		f.Terminate.Type = uint8(r.number(show, 8))
	case "iwarp_rdma.term_errcode", "iwarp_rdma.term_errcode_rdma", "iwarp_rdma.term_errcode_ddp_tagged",
		"iwarp_rdma.term_errcode_ddp_untagged", "iwarp_rdma.term_errcode_llp":
		f.Terminate.Code = uint8(r.number(show, 8))
	case "iwarp_rdma.term_hdrct_m":
		f.Terminate.M = r.flag(show)
	case "iwarp_rdma.hdrct_d":
		f.Terminate.D = r.flag(show)
	case "iwarp_rdma.hdrct_r":
		f.Terminate.R = r.flag(show)
	case "iwarp_rdma.term_ddp_seg_len":
		f.Terminate.Length = r.number("0x"+a["value"], 16)
	case "iwarp_rdma.term_ddp_h", "iwarp_rdma.term_rdma_h":
		f.Terminate.Headers = append(f.Terminate.Headers, r.bytes(a)...)
	}
}

// number parses a field of at most the given number of bits; 0 means 63.
func (r *reader) number(show string, bits int) int {
	if bits == 0 {
		bits = 63
	}
	n, err := strconv.ParseUint(show, 0, bits)
	if err != nil {
		r.err = err
	}
	return int(n)
}

func (r *reader) wide(show string) uint64 {
	n, err := strconv.ParseUint(show, 0, 64)
	if err != nil {
		r.err = err
	}
	return n
}

func (r *reader) flag(show string) bool { return r.number(show, 1) == 1 }

func (r *reader) bytes(a map[string]string) []byte {
	b, err := hex.DecodeString(a["value"])
	if err != nil {
		r.err = err
	}
	return b
}

// zero requires that a field is all zeros.
func (r *reader) zero(a map[string]string) {
	if strings.Trim(a["value"], "0") != "" {
		r.err = fmt.Errorf("%s is not zero", a["showname"])
	}
}
