//! YAML, TOML and JSON files that a script reads.

use super::*;

#[track_caller]
fn with_file(read: &str, file: (&str, &str), expected: &str) -> BatchSite {
    let text = format!("import yaml, json\n{read}\n{LOOP}");
    check(&[("train.py", &text), file], expected)
}

const YAML: &str = "# settings\nmodel:\n  width: 128  # ä\ntrain:\n  lr: 1e-3\n  batch_size: 32   # samples\nval: {batch_size: 64}\n";

#[test]
fn yaml() {
    let take = "loader = DataLoader(ds, batch_size=cfg['train']['batch_size'])";
    for read in [
        "with open('config.yaml') as f:\n    cfg = yaml.safe_load(f)",
        "cfg = yaml.load(open('config.yaml', 'r'), Loader=yaml.FullLoader)",
        "f = open('./config.yaml')\ncfg = yaml.safe_load(f)",
        "cfg = yaml.safe_load(Path('config.yaml').read_text())",
        "cfg = yaml.safe_load((Path(__file__).parent / 'config.yaml').read_text())",
        "CONFIG = 'config.yaml'\nwith open(CONFIG) as f:\n    cfg = yaml.safe_load(f.read())",
        "def load(path):\n    with open(path) as f:\n        return yaml.safe_load(f)\ncfg = load('config.yaml')",
        "cfg = OmegaConf.load('config.yaml')",
    ] {
        let site = with_file(&format!("{read}\n{take}"), ("config.yaml", YAML), "config.yaml:6 32");
        assert_eq!(site.text, "batch_size: 32");
    }
    with_file(
        "cfg = EasyDict(yaml.safe_load(open('config.yaml')))\nloader = DataLoader(ds, cfg.train.batch_size)",
        ("config.yaml", YAML),
        "config.yaml:6 32",
    );
}

#[test]
fn file_named_by_an_argument() {
    let read = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--config', default='a.yaml')\nargs = p.parse_args()\nwith open(args.config) as f:\n    cfg = yaml.safe_load(f)\nloader = DataLoader(ds, cfg['bs'])";
    let text = format!("{read}\n{LOOP}");
    let files = [("train.py", text.as_str()), ("a.yaml", "bs: 4\n"), ("b.yaml", "lr: 1\nbs: 6\n")];
    check(&files, "a.yaml:1 4");
    let set =
        |entry: &mut Entry| entry.arguments = vec!["--config".to_owned(), "b.yaml".to_owned()];
    check_with(&files, set, "b.yaml:2 6");
}

#[test]
fn toml_and_json() {
    let take = "loader = DataLoader(ds, batch_size=cfg['train']['batch_size'])";
    with_file(
        &format!("cfg = tomllib.load(open('c.toml', 'rb'))\n{take}"),
        ("c.toml", "# c\n[train]\nlr = 0.1\nbatch_size = 1_024 # b\n"),
        "c.toml:4 1024",
    );
    with_file(
        &format!("cfg = tomllib.loads(Path('c.toml').read_text())\n{take}"),
        ("c.toml", "train.batch_size = 12\n"),
        "c.toml:1 12",
    );
    with_file(
        &format!("with open('c.json') as f:\n    cfg = json.load(f)\n{take}"),
        ("c.json", "{\n\t\"train\": {\n\t\t\"batch_size\": 12\n\t}\n}\n"),
        "c.json:3 12",
    );
}

#[test]
fn hydra() {
    let text = "@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg: DictConfig) -> None:\n    loader = DataLoader(ds, batch_size=cfg.train.batch_size)\n    for x in loader:\n        f(x).backward()\nif __name__ == '__main__':\n    main()\n";
    check(
        &[("train.py", text), ("conf/config.yaml", "train:\n  batch_size: 32\n")],
        "conf/config.yaml:2 32",
    );
    check(
        &[
            ("train.py", text),
            ("conf/config.yaml", "defaults:\n  - _self_\n  - train: base\n"),
            ("conf/train/base.yaml", "lr: 1\nbatch_size: 8\n"),
        ],
        "conf/train/base.yaml:2 8",
    );
    check(
        &[("train.py", text), ("conf/config.yaml", "bs: 16\ntrain:\n  batch_size: ${bs}\n")],
        "conf/config.yaml:1 16",
    );
    let set = |entry: &mut Entry| entry.arguments = vec!["train.batch_size=64".to_owned()];
    check_refused_with(
        &[("train.py", text), ("conf/config.yaml", "train:\n  batch_size: 32\n")],
        set,
        "change it there",
    );
}

#[test]
fn missing_files_and_keys() {
    let read =
        "cfg = yaml.safe_load(open('c.yaml'))\nloader = DataLoader(ds, cfg['train']['batch_size'])";
    let text = format!("{read}\n{LOOP}");
    let refused = |files: &[(&str, &str)], reason: &str| {
        let mut all = vec![("train.py", text.as_str())];
        all.extend(files);
        check_refused_with(&all, |_| {}, reason);
    };
    refused(&[], "reads c.yaml, which is not in the project");
    refused(&[("c.yaml", "train: {lr: 1}\n")], "has no `train.batch_size`");
    refused(&[("c.yaml", "train: [\n")], "is not valid YAML");
    refused(&[("c.yaml", "train:\n  batch_size: '32'\n")], "");
    check_refused_with(
        &[("train.py", &text.replace("c.yaml", "/etc/c.yaml"))],
        |_| {},
        "not in the project",
    );
    check_refused_with(
        &[("train.py", &text.replace("c.yaml", "../../c.yaml"))],
        |_| {},
        "not in the project",
    );
    check_refused_with(
        &[("train.py", &text.replace("'c.yaml'", "os.environ['CONFIG']"))],
        |_| {},
        "reads it from a file that its code does not name",
    );
}

#[test]
fn anchors_and_non_ascii_keys() {
    with_file(
        "cfg = yaml.safe_load(open('c.yaml'))\nloader = DataLoader(ds, cfg['b'])",
        ("c.yaml", "größe: ä\na: &size 32\nb: *size\n"),
        "c.yaml:2 32",
    );
}
