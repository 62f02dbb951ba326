// Package containers tests shared memory between containers of one host. A container is a
// process with network, mount and pid namespaces of its own, made without a container runtime:
// the tests need root, ip and nsenter, and nft for address translation. Containers are joined by
// veth pairs and mount one directory, each at another place than the host. Their connections move at their first exchange.
//
// Nothing is sent to anywhere but these namespaces.
package containers
