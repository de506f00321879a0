//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An identity is what a server needs to speak TLS, as files, and what its clients must trust.
type identity struct {
	certFile, keyFile, rootFile string
	roots                       *x509.CertPool
}

// TLS makes a server speak TLS, and nothing else. The certificate and the authority behind it are made here; servers with
// the same option share both, and can be of one cluster or replicas of one another.
func TLS(tb testing.TB) Option {
	tb.Helper()
	rootKey, key := newKey(tb), newKey(tb)
	root := newCertificate(1, "redistest authority")
	root.IsCA, root.BasicConstraintsValid = true, true
	root.KeyUsage = x509.KeyUsageCertSign
	leaf := newCertificate(2, "redistest")
	leaf.IPAddresses = []net.IP{net.ParseIP(loopback)}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} // nodes are both

	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	require.NoError(tb, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), rootKey)
	require.NoError(tb, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(tb, err)

	dir := tb.TempDir()
	id := &identity{
		rootFile: writePEM(tb, filepath.Join(dir, "root.pem"), "CERTIFICATE", rootDER),
		certFile: writePEM(tb, filepath.Join(dir, "cert.pem"), "CERTIFICATE", leafDER),
		keyFile:  writePEM(tb, filepath.Join(dir, "key.pem"), "PRIVATE KEY", keyDER),
		roots:    x509.NewCertPool(),
	}
	cert, err := x509.ParseCertificate(rootDER)
	require.NoError(tb, err)
	id.roots.AddCert(cert)
	return func(c *config) { c.identity = id }
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	return key
}

func newCertificate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func writePEM(tb testing.TB, path, kind string, der []byte) string {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
