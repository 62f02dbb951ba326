package status

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Write writes the program as JSON. It does not use package encoding/json, which would make every
// program built by "sdp go" larger.
func (p *Program) Write(w io.Writer) error {
	var o object
	o.open()
	o.int("version", int64(p.Version))
	o.int("pid", int64(p.PID))
	o.string("name", p.Name)
	o.int("uid", int64(p.UID))
	o.time("time", p.Time)
	o.int("open", int64(p.Open))
	o.uint("opened", p.Opened)
	o.int("closing", int64(p.Closing))
	o.int("memory", p.Memory)
	o.int("memory_limit", p.MemoryLimit)
	numbers(&o, "plain_dials", p.PlainDials)
	numbers(&o, "plain_accepts", p.PlainAccepts)
	if len(p.Pinned) > 0 {
		numbers(&o, "pinned", p.Pinned)
	}
	o.key("connections")
	o.text = append(o.text, '[')
	for i := range p.Conns {
		before := len(o.text)
		if i > 0 {
			o.text = append(o.text, ',')
		}
		o.conn(&p.Conns[i])
		if len(o.text)+len("]}\n") > MaxDocument {
			o.text = o.text[:before]
			break
		}
	}
	o.text = append(o.text, ']')
	o.close()
	_, err := w.Write(append(o.text, '\n'))
	return err
}

func (o *object) conn(c *Conn) {
	o.open()
	o.uint("id", c.ID)
	o.string("local", c.Local)
	o.string("remote", c.Remote)
	o.string("device", c.Device)
	o.bool("dialled", c.Dialled)
	o.bool("closing", c.Closing)
	o.time("opened", c.Opened)
	if c.OnTCP != "" {
		o.string("on_tcp", c.OnTCP)
	}
	o.uint("moves", c.Moves)
	o.uint("sent", c.Sent)
	o.uint("received", c.Received)
	o.uint("zcopy_sent", c.ZCopySent)
	o.uint("zcopy_received", c.ZCopyRecv)
	o.uint("messages_sent", c.MsgSent)
	o.uint("messages_received", c.MsgRecv)
	o.uint("stalls", c.Stalls)
	o.int("unread", int64(c.Unread))
	o.int("send_credit", int64(c.SendCredit))
	o.int("recv_credit", int64(c.RecvCredit))
	o.int("buffers", int64(c.Buffers))
	o.int("buffer_size", int64(c.BufferSize))
	o.string("mode", c.Mode)
	o.key("declined")
	o.open()
	for _, device := range slices.Sorted(maps.Keys(c.Declined)) {
		o.string(device, c.Declined[device])
	}
	o.close()
	o.close()
}

// numbers adds an object with the numbers of a table.
func numbers[N int64 | uint64](o *object, name string, table map[string]N) {
	o.key(name)
	o.open()
	for _, key := range slices.Sorted(maps.Keys(table)) {
		o.uint(key, uint64(table[key]))
	}
	o.close()
}

// An object is a JSON object that is being written.
type object struct{ text []byte }

func (o *object) open()  { o.text = append(o.text, '{') }
func (o *object) close() { o.text = append(o.text, '}') }

func (o *object) key(name string) {
	if o.text[len(o.text)-1] != '{' {
		o.text = append(o.text, ',')
	}
	o.text = append(appendString(o.text, name), ':')
}

func (o *object) string(name, value string) { o.key(name); o.text = appendString(o.text, value) }
func (o *object) int(name string, n int64)  { o.key(name); o.text = strconv.AppendInt(o.text, n, 10) }
func (o *object) uint(name string, n uint64) {
	o.key(name)
	o.text = strconv.AppendUint(o.text, n, 10)
}
func (o *object) bool(name string, b bool) { o.key(name); o.text = strconv.AppendBool(o.text, b) }
func (o *object) time(name string, t time.Time) {
	o.key(name)
	o.text = append(t.AppendFormat(append(o.text, '"'), time.RFC3339Nano), '"')
}

// appendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
