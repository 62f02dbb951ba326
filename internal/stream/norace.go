//go:build linux && !race

package stream

func raceWrite() {}

func raceRead() {}
