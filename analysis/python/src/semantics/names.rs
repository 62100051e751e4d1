//! What a name means: the assignments of its scope that can reach its use, parameters, imports.

use super::module::{Assignment, Branch};
use super::trace::{CHANGED_IN_A_BRANCH, DEEPEST, Found, Place, Step, Tracer};
use super::{Refusal, arguments, objects};

impl Tracer<'_> {
    /// What a name means at a place.
    pub fn name(&self, place: &Place, name: &str, path: &[Step]) -> Found {
        let module = &self.modules[place.module];
        let mut function = module.function_at(place.span.start);
        let mut offset = place.span.start;
        // A default and a decorator are evaluated outside of their function.
        while let Some(at) = function
            && !module.functions[at].body.contains(&offset)
        {
            function = module.functions[at].outer;
        }
        let mut is_own = true;
        loop {
            let all: Vec<&Assignment> = module
                .assignments
                .iter()
                .filter(|one| one.function == function && one.class.is_none())
                .collect();
            let until = if is_own { offset } else { usize::MAX };
            if let Some(found) = self.assigned(place, name, path, &all, until) {
                return found;
            }
            let Some(at) = function else { break };
            if module.functions[at].parameters.iter().any(|parameter| parameter.name == name) {
                let base = objects::parameter(self, place.module, at, name, path);
                return base;
            }
            (function, is_own) = (module.functions[at].outer, false);
            offset = module.functions[at].span.start;
        }
        // A class body's own names, for the values of its fields.
        if let Some(class) = module.class_at(place.span.start) {
            let all: Vec<&Assignment> =
                module.assignments.iter().filter(|one| one.class == Some(class)).collect();
            if let Some(found) = self.assigned(place, name, path, &all, place.span.start) {
                return found;
            }
        }
        self.global_of_others(place, name, path)
    }

    fn global_of_others(&self, place: &Place, name: &str, path: &[Step]) -> Found {
        let module = &self.modules[place.module];
        if let (Some(class), Some(Step::Key(_))) = (module.class(name), path.first()) {
            return objects::of_class(self, place.module, class, None, path);
        }
        for (here, from, there) in &module.names {
            if here == name && there.is_empty() {
                if let (Some(target), [Step::Key(key), rest @ ..]) =
                    (self.files.imported(&module.path, from), path)
                {
                    return self.global(target, key, rest);
                }
            } else if here == name {
                let separator = if from.ends_with('.') { "" } else { "." };
                let inner = self.files.imported(&module.path, &format!("{from}{separator}{there}"));
                if let (Some(target), [Step::Key(key), rest @ ..]) = (inner, path) {
                    return self.global(target, key, rest);
                }
                if let Some(target) = self.files.imported(&module.path, from) {
                    return self.global(target, there, path);
                }
            } else if here == "*"
                && let Some(target) = self.files.imported(&module.path, from)
                && target != place.module
            {
                let found = self.global(target, name, path);
                if !found.is_empty() {
                    return found;
                }
            }
        }
        // Another's object of a known kind, such as absl's flags, is read at its use.
        if let Some(found) = arguments::well_known(self, name, path) {
            return found;
        }
        self.doubt(place, format!("gets it from `{name}`, whose value is not in the project"))
    }

    /// Looks further, unless that is too deep: names of modules may lead in circles.
    pub fn deeper<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let depth = self.depth.get();
        if depth >= DEEPEST {
            return None;
        }
        self.depth.set(depth + 1);
        let found = look();
        self.depth.set(depth);
        Some(found)
    }

    /// A name of a module, as an import sees it.
    pub fn global(&self, module: usize, name: &str, path: &[Step]) -> Found {
        self.deeper(|| self.own_global(module, name, path)).unwrap_or_default()
    }

    fn own_global(&self, module: usize, name: &str, path: &[Step]) -> Found {
        let text = &self.modules[module];
        let place = Place { module, span: 0..0 };
        let all: Vec<&Assignment> = text
            .assignments
            .iter()
            .filter(|one| one.function.is_none() && one.class.is_none())
            .collect();
        match self.assigned(&place, name, path, &all, usize::MAX) {
            Some(found) => found,
            None => self.global_of_others(&place, name, path),
        }
    }

    /// What a name was given in one scope, before `until`; nothing where it was given nothing.
    fn assigned(
        &self,
        place: &Place,
        name: &str,
        path: &[Step],
        all: &[&Assignment],
        until: usize,
    ) -> Option<Found> {
        let used_in = self.branches_at(place);
        // `args.batch_size = 64` behind `args = parser.parse_args()`.
        let mut found: Option<Found> = None;
        // The longest target first: `config.train.batch_size = 32`.
        let mut written = vec![name.to_owned()];
        let mut targets: Vec<(Vec<String>, &[Step])> = Vec::new();
        let mut rest = path;
        while targets.len() < 4
            && let [Step::Key(key), inner @ ..] = rest
        {
            written = written
                .iter()
                .flat_map(|before| [format!("{before}.{key}"), format!("{before}[\"{key}\"]")])
                .collect();
            targets.push((written.clone(), inner));
            rest = inner;
        }
        for (written, rest) in targets.into_iter().rev() {
            let of_member: Vec<&Assignment> =
                all.iter().copied().filter(|one| written.contains(&one.target)).collect();
            let (certain, changed) = self.reaching(place, &of_member, until, &used_in, rest);
            found = match (found, changed) {
                (Some(before), Some(changed)) => Some(before.or(changed)),
                (before, changed) => before.or(changed),
            };
            if certain {
                return found;
            }
        }
        let of_name: Vec<&Assignment> =
            all.iter().copied().filter(|one| one.target == name).collect();
        let (_, base) = self.reaching(place, &of_name, until, &used_in, path);
        match (base, found) {
            (Some(base), Some(changed)) => Some(base.or(changed)),
            (Some(base), None) => Some(base),
            (None, Some(changed)) => {
                // The object itself is a parameter, or another scope's.
                let base = self.without_own(place, name, path);
                Some(base.or(changed))
            }
            (None, None) => None,
        }
    }

    /// A name that this scope changes a member of, but does not make.
    fn without_own(&self, place: &Place, name: &str, path: &[Step]) -> Found {
        let module = &self.modules[place.module];
        let function = module.function_at(place.span.start);
        let parameter = function.filter(|at| {
            module.functions[*at].parameters.iter().any(|parameter| parameter.name == name)
        });
        match parameter {
            Some(at) => objects::parameter(self, place.module, at, name, path),
            None if function.is_some() => self.global(place.module, name, path),
            None => Found::default(),
        }
    }

    /// What the assignments that can reach a use give: whether one of them certainly does, and all.
    fn reaching(
        &self,
        place: &Place,
        all: &[&Assignment],
        until: usize,
        used_in: &[Branch],
        path: &[Step],
    ) -> (bool, Option<Found>) {
        let mut found: Option<Found> = None;
        let mut certain = false;
        for one in all.iter().filter(|one| one.value.end <= until || one.at.start >= until) {
            // What stands behind its use counts in a loop alone, and not where something stood before.
            if one.at.start >= until && found.is_some() {
                continue;
            }
            let open: Vec<&Branch> =
                one.branches.iter().filter(|branch| !used_in.contains(branch)).collect();
            let decided: Vec<Option<bool>> =
                open.iter().map(|branch| self.branch_holds(place.module, branch)).collect();
            if decided.contains(&Some(false)) {
                continue;
            }
            let is_open = decided.contains(&None);
            let value = self.value_of(place.module, one, path, is_open);
            found = match found {
                Some(before) if is_open => Some(before.or(value)),
                _ => Some(value),
            };
            certain |= !is_open;
        }
        (certain, found)
    }

    fn value_of(&self, module: usize, one: &Assignment, path: &[Step], is_open: bool) -> Found {
        let place = Place { module, span: one.value.clone() };
        let text = &self.modules[module];
        let written = text.text(&one.value).replace('\'', "\"");
        let from_itself = one.is_augmented || written.contains(one.target.as_str());
        if is_open && from_itself {
            let (file, line) = (text.path.clone(), text.line(one.at.start));
            let message = format!("{CHANGED_IN_A_BRANCH}, {file}:{line} changes it");
            return Found::doubt(Refusal { message, at: Some((file, line)) });
        }
        if one.is_augmented {
            return self.doubt(&place, "changes the batch size after setting it");
        }
        match one.element {
            Some(at) => {
                let longer: Vec<Step> =
                    std::iter::once(Step::Element(at)).chain(path.iter().cloned()).collect();
                self.trace(&place, &longer)
            }
            None => self.trace(&place, path),
        }
    }

    /// The module that a dotted name means here, where it is one of the project's.
    pub fn imported_module(&self, module: usize, dotted: &str) -> Option<usize> {
        let module = &self.modules[module];
        module.names.iter().find_map(|(here, from, there)| {
            if here != dotted {
                return None;
            }
            if there.is_empty() {
                return self.files.imported(&module.path, from);
            }
            let separator = if from.ends_with('.') { "" } else { "." };
            self.files.imported(&module.path, &format!("{from}{separator}{there}"))
        })
    }
}
