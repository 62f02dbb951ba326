package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// canLinkNamespaces returns nil if this process can create and connect network namespaces.
func canLinkNamespaces() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// unshare makes cmd start in its own network namespace, which ends with the process.
func unshare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
}

// linkNamespaces connects the network namespaces of two processes by a veth pair.
func linkNamespaces(server, client int) error {
	err := run("ip", "link", "add", "bench", "netns", strconv.Itoa(server), "type", "veth", "peer", "bench", "netns", strconv.Itoa(client))
	for pid, address := range map[int]string{server: farServer, client: farClient} {
		in := func(arguments ...string) error {
			return run("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, arguments...)...)
		}
		err = errors.Join(err,
			in("address", "add", address+"/30", "dev", "bench"),
			in("link", "set", "bench", "up"),
			in("link", "set", "lo", "up"))
	}
	return err
}

func run(name string, arguments ...string) error {
	out, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, arguments, err, out)
	}
	return nil
}
