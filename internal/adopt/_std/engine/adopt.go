// This file is part of package engine only inside package net.

package engine

import "net"

// Under returns the TCP connection below c.
func (c *Conn) Under() net.Conn { return c.tcp }
