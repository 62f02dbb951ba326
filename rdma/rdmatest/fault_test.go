package rdmatest

import (
	"errors"

	"github.com/gosdp/gosdp/rdma"
)

// fault is a way in which a model device breaks the contract.
type fault string

const (
	sound           fault = ""
	reorders        fault = "two messages swap places under backpressure"
	losesMessage    fault = "a message is lost now and then"
	mergesMessages  fault = "a byte of the message before stays"
	keepsPayload    fault = "PostSend keeps the caller's payload"
	reusesLent      fault = "a lent buffer is filled again"
	overrunIgnored  fault = "a message without a buffer is delivered"
	lengthIgnored   fault = "a message longer than the buffer is delivered"
	foreignRevoked  fault = "a Send may invalidate anything"
	freshError      fault = "each call returns an error of its own"
	writesLate      fault = "a Write waits until somebody carries it, and is not told as Busy"
	rightsIgnored   fault = "every region may be read and written"
	oneTooMany      fault = "an access may go one byte too far"
	wrapsAround     fault = "the end of an access overflows"
	startIgnored    fault = "an access may begin before the region"
	sharesSTags     fault = "a region is known to both ends, as to all connections"
	countsSTags     fault = "STags are counted up"
	staysExposed    fault = "Invalidate does nothing"
	losesWake       fault = "a Wake that finds nobody waiting is lost"
	pollTakesWake   fault = "Poll uses up a Wake"
	spins           fault = "Wait does not park"
	losesWakeRoom   fault = "a WakeRoom that finds nobody waiting is lost"
	roomIdles       fault = "WaitRoom carries nothing"
	flushIdles      fault = "Flush carries nothing"
	blocksWhenBusy  fault = "PostSend waits for room"
	refusesBare     fault = "a Busy device refuses bare messages"
	boundless       fault = "a Busy device takes any number of bare messages"
	drainsNothing   fault = "Drain does not wait"
	drainsForever   fault = "Drain ignores its deadline"
	closeOvertakes  fault = "Close destroys what was sent"
	abortsKindly    fault = "Abort looks like Close"
	leaks           fault = "Close leaves a goroutine behind"
	allocates       fault = "every message is allocated"
)

var _ = errors.New
var _ rdma.STag
