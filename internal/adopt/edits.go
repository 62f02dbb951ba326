package adopt

// An edit changes one place of package net.
type edit struct {
	// at is the text of the place: a whole line without its end if prologue is set, any text
	// otherwise. It must occur exactly once.
	at string
	// prologue is inserted into the function whose first line at is, without a new line.
	prologue string
	// instead replaces at, if prologue is empty.
	instead string
}

// hookEdits are the changes to package net itself. The functions that they call are in _std/net.
var hookEdits = []edit{
	{at: "type netFD struct {", prologue: "sdp *sdpLink; sdpSettled bool"},

	// One place for Dial, DialTCP, happy eyeballs, one for Listen and ListenTCP, and one for all Accepts.
	{at: "func (sd *sysDialer) doDialTCPProto(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {",
		prologue: "if raddr != nil && sdpWanted(ctx) { return sd.sdpDial(ctx, laddr, raddr, proto) }"},
	{at: "func (sl *sysListener) listenTCPProto(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error) {",
		prologue: "if sdpWanted(ctx) { return sl.sdpListen(ctx, laddr, proto) }"},
	{at: "return newTCPConn(fd, ln.lc.KeepAlive, ln.lc.KeepAliveConfig, testPreHookSetKeepAlive, testHookSetKeepAlive), nil",
		instead: "return ln.sdpAccepted(newTCPConn(fd, ln.lc.KeepAlive, ln.lc.KeepAliveConfig, testPreHookSetKeepAlive, testHookSetKeepAlive)), nil"},
	{at: "return newTCPConn(fd, defaultTCPKeepAliveIdle, KeepAliveConfig{}, testPreHookSetKeepAlive, testHookSetKeepAlive), nil",
		instead: "return sdpContinued(newTCPConn(fd, defaultTCPKeepAliveIdle, KeepAliveConfig{}, testPreHookSetKeepAlive, testHookSetKeepAlive)), nil"},
	{at: "return &TCPListener{fd: fd}, nil", instead: "return sdpInherit(fd)"},
	{at: "func (r *Resolver) exchange(ctx context.Context, server string, q dnsmessage.Question, timeout time.Duration, useTCP, ad bool) (dnsmessage.Parser, dnsmessage.Header, error) {",
		prologue: "ctx = sdpPlain(ctx)"},

	{at: "func (fd *netFD) accept() (netfd *netFD, err error) {", prologue: "if sdpRDMA && fd.sdp != nil { return fd.sdpAccept() }"},
	{at: "func (fd *netFD) Read(p []byte) (n int, err error) {", prologue: "if fd.sdp != nil { return fd.sdpRead(p) }"},
	{at: "func (fd *netFD) Write(p []byte) (nn int, err error) {", prologue: "if fd.sdp != nil { return fd.sdpWrite(p) }"},
	{at: "func (fd *netFD) writeBuffers(v *Buffers) (n int64, err error) {", prologue: "if fd.sdp != nil { return fd.sdpWriteBuffers(v) }"},
	{at: "func (fd *netFD) Close() error {", prologue: "if fd.sdp != nil { return fd.sdpClose() }"},
	{at: "func (fd *netFD) shutdown(how int) error {", prologue: "if fd.sdp != nil { return fd.sdpShutdown(how) }"},
	{at: "func (fd *netFD) SetDeadline(t time.Time) error {", prologue: "if fd.sdp != nil { return fd.sdpSetDeadline(t) }"},
	{at: "func (fd *netFD) SetReadDeadline(t time.Time) error {", prologue: "if fd.sdp != nil { return fd.sdpSetReadDeadline(t) }"},
	{at: "func (fd *netFD) SetWriteDeadline(t time.Time) error {", prologue: "if fd.sdp != nil { return fd.sdpSetWriteDeadline(t) }"},
	{at: "func (fd *netFD) dup() (f *os.File, err error) {", prologue: "if fd.sdp != nil { return fd.sdpDup() }"},

	// Copies within the kernel would read and write the socket directly.
	{at: "func (c *TCPConn) readFrom(r io.Reader) (int64, error) {", prologue: "if c.fd.sdp != nil || sdpCarries(r) { return c.sdpReadFrom(r) }"},
	{at: "func (c *TCPConn) writeTo(w io.Writer) (int64, error) {", prologue: "if c.fd.sdp != nil { return c.sdpWriteTo(w) }"},
	{at: "func (c *rawConn) PollFD() *poll.FD {", prologue: "if c.sdpHas() { return nil }"},

	{at: "func (c *rawConn) Control(f func(uintptr)) error {", prologue: "if c.sdpHas() { return c.sdpControl(f) }"},
	{at: "func (c *rawConn) Read(f func(uintptr) bool) error {", prologue: "if c.sdpHas() { return c.sdpRead(f) }"},
	{at: "func (c *rawConn) Write(f func(uintptr) bool) error {", prologue: "if c.sdpHas() { return c.sdpWrite(f) }"},

	{at: "func setReadBuffer(fd *netFD, bytes int) error {", prologue: "if fd.sdp != nil { return fd.sdpSetReadBuffer(bytes) }"},
	{at: "func setLinger(fd *netFD, sec int) error {", prologue: "if fd.sdp != nil { return fd.sdpSetLinger(sec) }"},
	{at: "func setWriteBuffer(fd *netFD, bytes int) error {", prologue: "fd = fd.sdpSock()"},
	{at: "func setKeepAlive(fd *netFD, keepalive bool) error {", prologue: "fd = fd.sdpSock()"},
	{at: "func setNoDelay(fd *netFD, noDelay bool) error {", prologue: "if fd.sdp != nil { return fd.sdpSetNoDelay(noDelay) }"},
	{at: "func setKeepAliveIdle(fd *netFD, d time.Duration) error {", prologue: "fd = fd.sdpSock()"},
	{at: "func setKeepAliveInterval(fd *netFD, d time.Duration) error {", prologue: "fd = fd.sdpSock()"},
	{at: "func setKeepAliveCount(fd *netFD, n int) error {", prologue: "fd = fd.sdpSock()"},
	{at: "func isUsingMultipathTCP(fd *netFD) bool {", prologue: "fd = fd.sdpSock()"},
}
