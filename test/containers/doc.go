// Package containers tests programs in different containers of one host. A container is a process
// with network, mount and pid namespaces of its own, made without a container runtime: the tests need
// root, ip and nsenter. Containers are joined by veth pairs.
//
// Nothing is sent to anywhere but these namespaces.
package containers
