package estimate

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Libraries as far as trackers.py changes them: each fails where the real one would reach a server.
var trackers = map[string]string{
	"wandb/__init__.py": `
def init(*args, mode="online", **kwargs):
    assert mode == "disabled", mode
def login(*args, **kwargs): raise OSError
`,
	"mlflow/__init__.py":                            "from mlflow.tracking._tracking_service.utils import *",
	"mlflow/tracking/__init__.py":                   "",
	"mlflow/tracking/_tracking_service/__init__.py": "",
	"mlflow/tracking/_tracking_service/utils.py": `
def get_tracking_uri(): return "http://localhost:5000"
def _resolve_tracking_uri(uri=None): return uri or get_tracking_uri()
def set_tracking_uri(uri): raise OSError
`,
	"huggingface_hub/__init__.py": "from huggingface_hub.hf_api import *",
	"huggingface_hub/hf_api.py": `
class RepoUrl(str): pass
class CommitInfo:
    def __init__(self, **kwargs): self.__dict__.update(kwargs)
class HfApi:
    def create_repo(self, repo_id): raise OSError
    def upload_file(self, *, repo_id): raise OSError
api = HfApi()
create_repo, upload_file = api.create_repo, api.upload_file
`,
	"train.py": `
import wandb  # before torch
exec(open("trackers.py").read())
class Run:
    notes, folder = [], "/ours"
    def note(self, text): self.notes.append(text)
keep_trackers_offline(Run())
import mlflow, huggingface_hub
from mlflow.tracking._tracking_service import utils
wandb.login(key="secret"); wandb.init(mode="online", project="x")
mlflow.set_tracking_uri("http://localhost:5000")
assert utils._resolve_tracking_uri("http://localhost:5000") == mlflow.get_tracking_uri()
assert mlflow.get_tracking_uri() == "file:///ours/mlruns"
assert huggingface_hub.create_repo("me/x") == "https://huggingface.co/me/x"
assert huggingface_hub.HfApi().upload_file(repo_id="me/x").oid == "0"
assert len(Run.notes) == 4, Run.notes
`}

// What a script tells trackers and hubs in its code does not bring them online.
func TestTrackersStayOffline(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: the libraries are written in it")
	}
	dir := t.TempDir()
	trackers["trackers.py"] = program("kernels", "trackers")
	for name, text := range trackers {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "train.py")
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
