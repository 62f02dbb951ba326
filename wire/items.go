package wire

import "fmt"

// Offers and choice are this project's own: a fixed header, and then items of a type (1 byte),
// a length (1 byte) and a value, in any order, each at most once. Items of unknown types are
// skipped, so that later versions can add some.

// Version is the version of the offers and of the choice.
const Version = 1

// MaxPrivateData bounds the private data of our MPA Requests and Replies, in bytes. RFC 5044
// allows 512, but siw and c4iw stop at 256, and the kernel's field has 8 bits.
const MaxPrivateData = 255

// walkItems calls take for every item in b whose type is an index of names.
func walkItems(message string, b []byte, names []string, take func(item byte, value []byte) error) error {
	var seen [256]bool
	for len(b) > 0 {
		item := b[0]
		name, known := itemName(names, item)
		if len(b) < 2 || len(b)-2 < int(b[1]) {
			return malformed(message, name, "runs past the end")
		}
		value := b[2 : 2+int(b[1])]
		b = b[2+len(value):]
		if !known {
			continue
		}
		if seen[item] {
			return malformed(message, name, "is listed twice")
		}
		seen[item] = true
		if err := take(item, value); err != nil {
			return err
		}
	}
	return nil
}

func itemName(names []string, item byte) (name string, known bool) {
	if int(item) < len(names) && names[item] != "" {
		return names[item], true
	}
	return fmt.Sprintf("item %d", item), false
}

// appendItem appends an item, whose value must not be longer than 255 bytes.
func appendItem(b []byte, item byte, value ...[]byte) []byte {
	n := 0
	for _, v := range value {
		n += len(v)
	}
	b = append(b, item, byte(n))
	for _, v := range value {
		b = append(b, v...)
	}
	return b
}
