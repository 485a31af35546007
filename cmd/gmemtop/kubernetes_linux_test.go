//go:build !nobus

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// kube is as much of a Kubernetes API server as kubectl needs to apply a manifest and to run a command in a
// pod. It stores what it is sent and starts no pods: a command "in a pod" runs on this machine.
type kube struct {
	t   *testing.T
	env []string // of commands in pods

	mu      sync.Mutex
	objects map[string]json.RawMessage // by path
	ran     []string                   // each command in a pod: its path, then its words
}

// newKube starts the server and makes kubectl use it. Commands in pods run with env.
func newKube(t *testing.T, env ...string) *kube {
	t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("needs kubectl: it talks to a stand-in for a cluster")
	}
	k := &kube{t: t, env: env, objects: map[string]json.RawMessage{}}
	s := httptest.NewServer(k)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	t.Setenv("KUBECACHEDIR", filepath.Join(dir, "cache"))
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config",`+
		`"current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],`+
		`"contexts":[{"name":"c","context":{"cluster":"c","namespace":"my-namespace"}}]}`, s.URL),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	return k
}

// kind is a kind of object that the cluster knows.
type kind struct{ group, plural, name string }

var kinds = []kind{{"", "pods", "Pod"}, {"", "services", "Service"}, {"batch", "jobs", "Job"},
	{"networking.k8s.io", "networkpolicies", "NetworkPolicy"}}

// path is where the kind's group is. All are of version v1.
func (x kind) path() string {
	if x.group == "" {
		return "/api/v1"
	}
	return "/apis/" + x.group + "/v1"
}

type object = map[string]any

// about returns what the server says of itself at a path: which groups and kinds it has, and by OpenAPI that
// it checks the fields of what it gets, so that kubectl does not. nil is for any other path.
func about(path string) object {
	switch path {
	case "/api":
		return object{"kind": "APIVersions", "versions": []string{"v1"}}
	case "/apis":
		var groups []object
		for _, x := range kinds {
			if v := (object{"groupVersion": x.group + "/v1", "version": "v1"}); x.group != "" {
				groups = append(groups, object{"name": x.group, "versions": []object{v},
					"preferredVersion": v})
			}
		}
		return object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	case "/openapi/v3":
		paths := object{}
		for _, x := range kinds {
			paths[x.path()[1:]] = object{"serverRelativeURL": "/openapi/v3" + x.path()}
		}
		return object{"paths": paths}
	}
	var resources []object
	patches := object{}
	for _, x := range kinds {
		if strings.TrimPrefix(path, "/openapi/v3") != x.path() {
			continue
		}
		resources = append(resources, object{"name": x.plural, "kind": x.name, "namespaced": true,
			"verbs": []string{"get", "list", "create", "patch"}})
		patches["/"+x.plural] = object{"patch": object{
			"parameters":                      []object{{"name": "fieldValidation", "in": "query"}},
			"x-kubernetes-group-version-kind": object{"group": x.group, "version": "v1", "kind": x.name}}}
	}
	switch {
	case resources == nil:
		return nil
	case strings.HasPrefix(path, "/openapi"):
		return object{"openapi": "3.0.0", "paths": patches}
	}
	version := strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")
	return object{"kind": "APIResourceList", "groupVersion": version, "resources": resources}
}

// ServeHTTP implements http.Handler.
func (k *kube) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			k.t.Error(err)
		}
	}
	switch known := about(r.URL.Path); {
	case known != nil:
		answer(http.StatusOK, known)
	case strings.HasSuffix(r.URL.Path, "/exec"):
		k.exec(w, r)
	case r.Method == http.MethodPost:
		text, err := io.ReadAll(r.Body)
		if err != nil {
			k.t.Error(err)
		}
		answer(http.StatusCreated, k.add(r.URL.Path, text))
	case strings.HasSuffix(r.URL.Path, "/pods"): // those of a job
		answer(http.StatusOK, object{"kind": "PodList", "apiVersion": "v1", "items": k.pods(r.URL.Path)})
	default:
		k.mu.Lock()
		found, ok := k.objects[r.URL.Path]
		k.mu.Unlock()
		if ok {
			answer(http.StatusOK, found)
			return
		}
		answer(http.StatusNotFound, object{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"reason": "NotFound", "code": http.StatusNotFound})
	}
}

// add stores an object below the path of its kind. A job gets a pod at once.
func (k *kube) add(path string, text []byte) json.RawMessage {
	var o struct {
		Metadata struct{ Name string }
	}
	if err := json.Unmarshal(text, &o); err != nil || o.Metadata.Name == "" {
		k.t.Errorf("%s gets %s: %v", path, text, err)
	}
	k.mu.Lock()
	k.objects[path+"/"+o.Metadata.Name] = text
	k.mu.Unlock()
	if before, isJob := strings.CutSuffix(path, "/jobs"); isJob {
		k.add(strings.Replace(before, "/apis/batch/v1", "/api/v1", 1)+"/pods",
			fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%s-0-x","namespace":%q,`+
				`"labels":{"job-name":%[1]q}},"spec":{"containers":[{"name":"train"}]},`+
				`"status":{"phase":"Running"}}`, o.Metadata.Name, filepath.Base(before)))
	}
	return text
}

// pods returns the pods below a path.
func (k *kube) pods(path string) (list []json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for at, text := range k.objects {
		if strings.HasPrefix(at, path+"/") {
			list = append(list, text)
		}
	}
	return list
}

// The channels of Kubernetes' protocol for a command in a pod: the first byte of a message names one.
const (
	execInput, execOutput, execErrors, execStatus = 0, 1, 2, 3
	execClose                                     = 255 // the next byte names the channel that ends
)

// channel writes to one channel of a command.
type channel struct {
	to   *websocket.Conn
	r    *http.Request
	name byte
}

func (c channel) Write(b []byte) (int, error) {
	return len(b), c.to.Write(c.r.Context(), websocket.MessageBinary, append([]byte{c.name}, b...))
}

// exec runs a command in a pod.
func (k *kube) exec(w http.ResponseWriter, r *http.Request) {
	const protocol = "v5.channel.k8s.io"
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
	if err != nil || c.Subprotocol() != protocol {
		k.t.Errorf("kubectl does not speak %s: %v", protocol, err)
		return
	}
	defer c.CloseNow()
	words := r.URL.Query()["command"]
	k.mu.Lock()
	k.ran = append(k.ran, strings.Join(append([]string{r.URL.Path}, words...), " "))
	k.mu.Unlock()
	cmd := exec.CommandContext(r.Context(), words[0], words[1:]...)
	cmd.Env = append(os.Environ(), k.env...)
	cmd.Stdout, cmd.Stderr = channel{c, r, execOutput}, channel{c, r, execErrors}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		k.t.Error(err)
		return
	}
	go func() {
		defer in.Close()
		for {
			_, m, err := c.Read(r.Context())
			if err != nil || len(m) == 2 && m[0] == execClose && m[1] == execInput {
				return
			}
			if len(m) > 0 && m[0] == execInput {
				_, _ = in.Write(m[1:])
			}
		}
	}()
	status := `{"kind":"Status","status":"Success"}`
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return // kubectl no longer listens
		}
		status = fmt.Sprintf(`{"kind":"Status","status":"Failure","reason":"NonZeroExitCode","message":%q,`+
			`"details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}`, err, exit.ExitCode())
	}
	if _, err := (channel{c, r, execStatus}).Write([]byte(status)); err == nil {
		_ = c.Close(websocket.StatusNormalClosure, "")
	}
}

// The commands of docs/fleet.md about Kubernetes are typed as they stand there. kubectl is the real one, the
// cluster is not: nothing pulls images, starts pods or enforces the policy.
func TestThePageAboutKubernetesIsTyped(t *testing.T) {
	h := newFarHub(t)
	k := newKube(t, "XDG_CACHE_HOME="+filepath.Join(h.dir, "far"))
	h.start(t, hubOf(h, "my-train"))
	manifest, err := os.ReadFile("../../packaging/kubernetes/gmemtop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "gmemtop.yaml"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	list := toType(t)
	// The page shows how to look at a job before it says how the job is made.
	slices.SortStableFunc(list, func(a, b typed) int {
		return strings.Compare(strings.Fields(b.command)[0], strings.Fields(a.command)[0])
	})
	for _, c := range list {
		t.Logf("%s$ %s", c.who, c.command)
		cmd := exec.Command("bash", "--norc", "-c", c.command)
		cmd.Dir = h.dir
		cmd.Env = append(os.Environ(), "TERM=vt220", "XDG_CACHE_HOME="+filepath.Join(h.dir, "near"))
		if onScreen(c.command) {
			x := newTerminal(t, 120, 40, cmd)
			screen, _ := x.until("the rank of the run", func(screen string) bool {
				return strings.Contains(screen, "3 of 4") && strings.Contains(screen, "n1")
			})
			t.Log("\n" + screen)
			x.close()
			continue
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n := bytes.Count(out, []byte(" created\n")); n != bytes.Count(manifest, []byte("\nkind: ")) {
			t.Errorf("%s", out)
		}
	}
	k.mu.Lock()
	ran := slices.Clone(k.ran)
	k.mu.Unlock()
	const asked = "/api/v1/namespaces/my-namespace/pods/%s/exec gmemtop relay"
	for _, want := range []string{fmt.Sprintf(asked, "my-train-0-x"),
		fmt.Sprintf(asked, "my-train-gmemtop")} {
		if !slices.ContainsFunc(ran, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("nothing ran as %q, but %q", want, ran)
		}
	}
	// An order goes the same way, and what goes wrong at the far end is said here.
	_, said, err := h.gmemtop(t.Context(), "capture", "--ranks", "3", "k8s://my-namespace/my-train")
	if err == nil || !strings.Contains(said, "no rank is running that could be captured") {
		t.Errorf("capture: %v %s", err, said)
	}
	_, said, err = h.gmemtop(t.Context(), "view", "--text", "k8s://my-namespace/other")
	if err == nil || !strings.Contains(said, "NotFound") {
		t.Errorf("a job that is not there: %v %s", err, said)
	}
}
