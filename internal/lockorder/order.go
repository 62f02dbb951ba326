package lockorder

// The classes of locks.
type (
	StreamWrite   struct{} // stream.Conn.wmu
	StreamRead    struct{} // stream.Conn.rmu
	StreamStep    struct{} // stream.Conn.stepMu
	StreamState   struct{} // stream.Conn.mu
	StreamMonitor struct{} // of the visits to connections
	StreamYoung   struct{} // of the visits to accepted connections that are young
	Doorbell      struct{} // shm.Doorbell.mu
	Watch         struct{} // spin.Watch.mu
	SegmentPool   struct{} // of the segments that are kept

	Dump        struct{} // of the dump in progress
	OpenConns   struct{} // of the list of open connections
	ConnWrite   struct{} // engine.Conn.writeMu
	ConnRead    struct{} // engine.Conn.readMu
	ConnSend    struct{} // engine.sender.mu
	ConnState   struct{} // engine.Conn.mu
	IdleMonitor struct{} // of the visits to idle connections over RDMA
	DeviceRead  struct{} // of iwarp's receiving half
	DeviceSend  struct{} // of iwarp's sending half
)

// order has the locks of docs/concurrency.md, and those of the dump and of devices: of each line, a lock may be
// taken while those before it are held. Locks that have no line in common may be taken in either order, but not in both.
var order = [][]any{
	{StreamWrite{}, StreamRead{}, StreamStep{}, StreamState{}, Doorbell{}, Watch{}},
	{StreamState{}, Doorbell{}, SegmentPool{}},
	{Dump{}, OpenConns{}, ConnSend{}, ConnState{}, IdleMonitor{}},
	{ConnWrite{}, OpenConns{}},
	{ConnRead{}, OpenConns{}},
	{DeviceRead{}, ConnSend{}, ConnState{}, DeviceSend{}}, // Poll and Wait need DeviceRead
}
