//go:build !race

package iwarp

func raceAcquire() {}
func raceRelease() {}
