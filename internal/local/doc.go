// Package local has connections between two programs of one host. They begin on TCP, move to shared
// memory while that pays, and come home. Package stream moves their bytes; this package decides what the
// process allows them, and makes them what package sdp gives to programs.
package local
