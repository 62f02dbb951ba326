package wire

import "fmt"

// Error is the error for malformed bytes from a peer. It ends the connection.
type Error struct {
	Message string // the message's name, such as "SrcAvail", or "offers" or "choice"
	Field   string // the field's name in the draft or docs/protocol.md
	What    string // what is wrong with it
}

// Error returns "wire: Hello: MajV: is 2, expected 1".
func (e *Error) Error() string {
	return "wire: " + e.Message + ": " + e.Field + ": " + e.What
}

func malformed(message, field, format string, args ...any) *Error {
	return &Error{Message: message, Field: field, What: fmt.Sprintf(format, args...)}
}
