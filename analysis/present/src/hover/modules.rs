//! The part of the hover about modules.

use super::{MAX_MODULES, Writer};
use crate::cost_map::DefinitionCost;
use crate::explained;
use crate::headline::with_provenance;
use crate::page::{Page, Piece, name, quantity, strong, text};
use ridgeline_profile::{ModuleCost, ModuleId};

impl Writer<'_> {
    pub(super) fn definition(&self, page: &mut Page, cost: &DefinitionCost) {
        let total = cost.total_time.total();
        let title = with_provenance(self.time_of(total), cost.provenance);
        let subject = match cost.modules.as_slice() {
            [_] => "the module created here".to_owned(),
            modules => format!("the {} modules created here", modules.len()),
        };
        page.line(&[strong(title), text(format!(" in {subject}"))]);
        self.stale(page, cost.provenance, "line");
        self.causes(page);
        self.phases(page, &cost.total_time);
        let facts = explained::of_modules(self.modules(&cost.modules), self.profile);
        self.facts(page, "", &facts);
        self.memory(page, &cost.memory);
        let parameters = self
            .modules(&cost.modules)
            .fold(0_u64, |sum, module| sum.saturating_add(module.parameters));
        // The list below shows the parameters of a single layer.
        if parameters > 0 && cost.modules.len() > 1 {
            page.line(&[text(format!("{} parameters", quantity(parameters)))]);
        }
        self.module_list(page, &cost.modules, !facts.is_empty());
    }

    pub(super) fn modules(&self, ids: &[ModuleId]) -> impl Iterator<Item = &ModuleCost> {
        ids.iter().filter_map(|id| self.profile.modules.get(id.0 as usize))
    }

    /// Lists modules, most expensive first. A single module also gets its facts, unless they are
    /// shown already.
    pub(super) fn module_list(&self, page: &mut Page, ids: &[ModuleId], facts_are_shown: bool) {
        let is_target = |module: &&ModuleCost| {
            !self.word.is_empty() && module.path.rsplit('.').next() == Some(self.word)
        };
        // On a line with several layers, show the layer under the cursor.
        let mut listed: Vec<&ModuleCost> = self.modules(ids).filter(is_target).collect();
        if listed.is_empty() {
            listed = self.modules(ids).collect();
        }
        listed.sort_by(|a, b| b.total_time.total().total_cmp(&a.total_time.total()));
        if let [module] = listed.as_slice() {
            let mut pieces = vec![strong("Layer:"), text(" ")];
            pieces.extend(self.module(module));
            page.line(&pieces);
            if !facts_are_shown {
                let facts = explained::of_modules(std::iter::once(*module), self.profile);
                self.facts(page, "layer: ", &facts);
            }
            return;
        }
        if listed.is_empty() || page.room() < 2 {
            return;
        }
        let shown = listed.len().min(MAX_MODULES).min(page.room() - 1);
        let more = if listed.len() > shown {
            format!("Layers: {} of {}", shown, listed.len())
        } else {
            "Layers".to_owned()
        };
        page.gap();
        page.line(&[strong(more)]);
        for module in listed.iter().take(shown) {
            page.item(0, &self.module(module));
        }
    }

    /// `conv Conv2d 65 ms (65%) · 2.0 million parameters`.
    fn module(&self, module: &ModuleCost) -> Vec<Piece> {
        let path = if module.path.is_empty() { "the model" } else { &module.path };
        let mut about = format!(" {}", self.time(module.total_time.total()));
        if module.parameters > 0 {
            about += &format!(" · {} parameters", quantity(module.parameters));
        }
        vec![name(path), text(" "), name(&module.type_name), text(about)]
    }
}
