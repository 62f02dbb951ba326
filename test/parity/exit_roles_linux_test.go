package parity

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// exitRoles returns the main functions of the two processes of a run.
func exitRoles() map[string]func([]string) {
	return map[string]func([]string){"exit-writer": exitWriter, "exit-reader": exitReader}
}

// exitWriter dials, writes, and ends without Close. Its arguments are the stack, the indexes
// of the row and of the ending, and the reader's address.
func exitWriter(arguments []string) {
	row, ending := exitRows[number(arguments[1])], endings[number(arguments[2])]
	lines := stdinLines()
	c, err := stackNamed(arguments[0]).Dial(arguments[3])
	check(err)
	fmt.Println("up")
	b := make([]byte, row.size)
	for i := range row.writes {
		_, err := c.Write(pattern(b, i*row.size))
		check(err)
	}
	if row.pause > 0 {
		fmt.Println("pausing")
		<-lines
		_, err := c.Write(pattern(b, row.writes*row.size))
		check(err)
	}
	switch ending {
	case "os.Exit(0)":
		os.Exit(0)
	case "return from main": // TestMain returns, then the binary's main function
		return
	case "panic":
		panic(exitPanic)
	case "SIGKILL":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// exitPanic identifies the panic of the writer.
const exitPanic = "the writer's intended panic"

// exitReader listens, prints its address, accepts one connection, reads until its end, and
// prints the result. Its arguments are the stack and the index of the row.
func exitReader(arguments []string) {
	row := exitRows[number(arguments[1])]
	lines := stdinLines()
	k := stackNamed(arguments[0])
	ln, err := k.Listen()
	check(err)
	fmt.Println(ln.Addr())
	if row.acceptLate > 0 {
		<-lines // until some time after the writer has ended
	}
	nc, err := ln.Accept()
	if err == nil {
		err = k.carries(nc)
	}
	check(err)
	time.Sleep(row.readLate)
	check(nc.SetReadDeadline(time.Now().Add(20 * time.Second)))
	got, err := readTo(nc, 0, endless)
	if errors.Is(err, errWrongByte) {
		check(err)
	}
	fmt.Println(got, describe(err))
}

// stdinLines returns the lines of the standard input. The process ends when the input ends.
func stdinLines() <-chan string {
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			lines <- s.Text()
		}
		os.Exit(1)
	}()
	return lines
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}
