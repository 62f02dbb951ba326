package sdp

import "github.com/gosdp/gosdp/test/conntest"

// What the tests of connections share; see package conntest.
const (
	soon         = conntest.Soon
	streamPeriod = conntest.StreamPeriod
	streamMax    = conntest.StreamMax
	forever      = conntest.Forever
)

var (
	accept1     = conntest.Accept1
	bothEnds    = conntest.BothEnds
	bothWays    = conntest.BothWays
	checkEcho   = conntest.CheckEcho
	checkDeath  = conntest.CheckDeath
	raceEnabled = conntest.RaceEnabled
	random      = conntest.Random
	rawPair     = conntest.RawPair
	readStream  = conntest.ReadStream
	sameBytes   = conntest.SameBytes
	streamAt    = conntest.StreamAt
	waitsIn     = conntest.WaitsIn
	writeStream = conntest.WriteStream
)
