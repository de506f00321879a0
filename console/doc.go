// Package console shows who holds what, since when, in an [inflight.Registry]: a web page for people, JSON for programs
// and text for curl, from one handler that an operator's server mounts wherever it likes.
//
//	mux.Handle("/debug/inflight/", console.Handler(registry, console.Config{}))
//
// The page lists the holders, oldest first, the keys by utilisation and the waiters in order, and updates itself. It is
// one file in the binary and loads nothing from anywhere. README.md in this folder describes the API.
//
// # Who may see it, and act
//
// The handler authenticates nobody: labels and keys are shown to whoever can reach it, so mount it behind what guards
// your other debug pages. It is read only unless [Config.Admin] is set. Then it also cancels and evicts slots and
// changes limits, and refuses requests that a browser sends on behalf of another site.
//
// That does not cover DNS rebinding, where another site has its own name point at your address: to the browser all is
// then one site. What guards against it is to refuse every Host but your own, or credentials, which a browser does not
// send to another name. A console that is reachable without credentials, on loopback too, needs the check of the Host.
//
// # What it costs
//
// Nothing while nobody looks: no goroutine runs and no timer is set, so the charts begin when the first page is opened
// and go on while one is seen. Open pages share one look at the registry per [Config.Interval]. A search looks at all
// holders; when looking takes long, updates come less often, so that it takes at most a tenth of one processor.
package console
