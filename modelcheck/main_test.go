package modelcheck_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// More than rapid's own 100, which a flag on the command line still changes.
	if err := flag.Set("rapid.checks", "400"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
