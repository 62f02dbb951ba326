// This file is part of package stream only inside package net.

package stream

import "net"

// Under returns the TCP connection below c.
func (c *Conn) Under() net.Conn { return c.tcp }
