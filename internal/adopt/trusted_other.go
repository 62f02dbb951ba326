//go:build !unix

package adopt

// trusted trusts every directory: the system has no owners and modes of this kind.
func trusted(string) error { return nil }
