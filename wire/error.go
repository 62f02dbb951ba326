package wire

import "fmt"

// Error says what is malformed in bytes that a peer sent. It ends the
// connection.
type Error struct {
	Message string // the message's name, "SrcAvail", or "offers" or "choice"
	Field   string // the field by its name in the draft or docs/protocol.md
	What    string // what is wrong with it
}

// Error returns "wire: Hello: MajV: is 2, we speak 1".
func (e *Error) Error() string {
	return "wire: " + e.Message + ": " + e.Field + ": " + e.What
}

func malformed(message, field, format string, args ...any) *Error {
	return &Error{Message: message, Field: field, What: fmt.Sprintf(format, args...)}
}
