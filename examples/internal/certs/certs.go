// Package certs makes certificates for examples, in memory.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"
)

// An Identity is what a program needs to authenticate itself and to verify its peer.
// All fields are DER.
type Identity struct {
	Authority   []byte // the certificate authority of both ends
	Certificate []byte
	Key         []byte
}

// New makes a certificate authority and two identities that it signs: a server on this
// host and a client with the given name. It discards the authority's key.
func New(clientName string) (server, client Identity, err error) {
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      pkix.Name{CommonName: name},
			NotBefore:    time.Now().Add(-time.Hour),
			NotAfter:     time.Now().Add(24 * time.Hour),
		}
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return server, client, err
	}
	authority := template(1, "the example's authority")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return server, client, err
	}

	sign := func(certificate *x509.Certificate) (Identity, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return Identity{}, err
		}
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return Identity{}, err
		}
		der, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
		return Identity{authorityDER, der, keyDER}, err
	}
	serverCertificate := template(2, "server")
	serverCertificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverCertificate.DNSNames = []string{"localhost"}
	serverCertificate.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if server, err = sign(serverCertificate); err != nil {
		return server, client, err
	}
	clientCertificate := template(3, clientName)
	clientCertificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	client, err = sign(clientCertificate)
	return server, client, err
}

// Config returns a configuration for either end. The peer must have a certificate of
// the same authority.
func (i Identity) Config() (*tls.Config, error) {
	authority, err := x509.ParseCertificate(i.Authority)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(i.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{i.Certificate}, PrivateKey: key}},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}, nil
}
