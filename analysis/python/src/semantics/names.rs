//! Resolves names: the assignments in a scope that can reach a use, parameters, imports.

use super::module::{Assignment, Branch};
use super::trace::{CHANGED_IN_A_BRANCH, MAX_DEPTH, Place, PossibleValues, Step, Tracer};
use super::{Refusal, arguments, objects};

impl Tracer<'_> {
    /// Traces what a name means at a place.
    pub fn name(&self, place: &Place, name: &str, path: &[Step]) -> PossibleValues {
        let module = &self.modules[place.module];
        let mut function = module.function_at(place.span.start);
        let mut offset = place.span.start;
        // Defaults and decorators are evaluated outside of their function.
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
            if let Some(found) = self.traced_assignments(place, name, path, &all, until) {
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
        // Names in the class body, for the values of its fields.
        if let Some(class) = module.class_at(place.span.start) {
            let all: Vec<&Assignment> =
                module.assignments.iter().filter(|one| one.class == Some(class)).collect();
            if let Some(found) = self.traced_assignments(place, name, path, &all, place.span.start)
            {
                return found;
            }
        }
        self.outside_name(place, name, path)
    }

    fn outside_name(&self, place: &Place, name: &str, path: &[Step]) -> PossibleValues {
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
        // Well-known objects of libraries, such as absl's flags.
        if let Some(found) = arguments::well_known(self, name, path) {
            return found;
        }
        self.doubt(place, format!("gets it from `{name}`, whose value is not in the project"))
    }

    /// Calls `inner` one level deeper, or returns `None` at the depth limit: names of modules may
    /// form cycles.
    pub fn deeper<T>(&self, inner: impl FnOnce() -> T) -> Option<T> {
        let depth = self.depth.get();
        if depth >= MAX_DEPTH {
            return None;
        }
        self.depth.set(depth + 1);
        let found = inner();
        self.depth.set(depth);
        Some(found)
    }

    /// Traces a global of a module, as seen by an import.
    pub fn global(&self, module: usize, name: &str, path: &[Step]) -> PossibleValues {
        self.deeper(|| self.own_global(module, name, path)).unwrap_or_default()
    }

    fn own_global(&self, module: usize, name: &str, path: &[Step]) -> PossibleValues {
        let text = &self.modules[module];
        let place = Place { module, span: 0..0 };
        let all: Vec<&Assignment> = text
            .assignments
            .iter()
            .filter(|one| one.function.is_none() && one.class.is_none())
            .collect();
        match self.traced_assignments(&place, name, path, &all, usize::MAX) {
            Some(found) => found,
            None => self.outside_name(&place, name, path),
        }
    }

    /// Traces the assignments to a name in one scope, before the offset `until`. Returns `None` if
    /// there are none.
    fn traced_assignments(
        &self,
        place: &Place,
        name: &str,
        path: &[Step],
        all: &[&Assignment],
        until: usize,
    ) -> Option<PossibleValues> {
        let used_in = self.branches_at(place);
        // `args.batch_size = 64` after `args = parser.parse_args()`.
        let mut found: Option<PossibleValues> = None;
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
            let (certain, changed) = self.reaching_values(place, &of_member, until, &used_in, rest);
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
        let (_, base) = self.reaching_values(place, &of_name, until, &used_in, path);
        match (base, found) {
            (Some(base), Some(changed)) => Some(base.or(changed)),
            (Some(base), None) => Some(base),
            (None, Some(changed)) => {
                // The object itself is a parameter, or belongs to another scope.
                let base = self.outer_object(place, name, path);
                Some(base.or(changed))
            }
            (None, None) => None,
        }
    }

    /// Traces a name of which this scope only changes a member.
    fn outer_object(&self, place: &Place, name: &str, path: &[Step]) -> PossibleValues {
        let module = &self.modules[place.module];
        let function = module.function_at(place.span.start);
        let parameter = function.filter(|at| {
            module.functions[*at].parameters.iter().any(|parameter| parameter.name == name)
        });
        match parameter {
            Some(at) => objects::parameter(self, place.module, at, name, path),
            None if function.is_some() => self.global(place.module, name, path),
            None => PossibleValues::default(),
        }
    }

    /// Traces the assignments that can reach a use. Returns whether one of them definitely does,
    /// and the values of all.
    fn reaching_values(
        &self,
        place: &Place,
        all: &[&Assignment],
        until: usize,
        used_in: &[Branch],
        path: &[Step],
    ) -> (bool, Option<PossibleValues>) {
        let mut found: Option<PossibleValues> = None;
        let mut certain = false;
        for one in all.iter().filter(|one| one.value.end <= until || one.at.start >= until) {
            // An assignment after the use only counts in a loop, and only if there is none before
            // it.
            if one.at.start >= until && found.is_some() {
                continue;
            }
            let undecided: Vec<&Branch> =
                one.branches.iter().filter(|branch| !used_in.contains(branch)).collect();
            let decided: Vec<Option<bool>> =
                undecided.iter().map(|branch| self.branch_holds(place.module, branch)).collect();
            if decided.contains(&Some(false)) {
                continue;
            }
            let is_undecided = decided.contains(&None);
            let value = self.value_of(place.module, one, path, is_undecided);
            found = match found {
                Some(before) if is_undecided => Some(before.or(value)),
                _ => Some(value),
            };
            certain |= !is_undecided;
        }
        (certain, found)
    }

    fn value_of(
        &self,
        module: usize,
        one: &Assignment,
        path: &[Step],
        is_undecided: bool,
    ) -> PossibleValues {
        let place = Place { module, span: one.value.clone() };
        let text = &self.modules[module];
        let written = text.text(&one.value).replace('\'', "\"");
        let from_itself = one.is_augmented || written.contains(one.target.as_str());
        if is_undecided && from_itself {
            let (file, line) = text.place(one.at.start);
            let message = format!("{CHANGED_IN_A_BRANCH}, {file}:{line} changes it");
            return PossibleValues::doubt(Refusal { message, at: Some((file, line)) });
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

    /// The module of the project that a dotted name means here.
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
