//! Facts about the benchmark behind the tables of `lambda/`: NVIDIA's DeepLearningExamples, as
//! started by lambdal/deeplearning-benchmark. They come from its code and configurations, not from
//! the tables, except for the two numbers in [`Unpublished`].

/// A model of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Benchmark {
    /// The name in the tables.
    pub name: &'static str,
    /// Trainable parameters.
    pub parameters: f64,
    /// Whether gradients are in FP16 if it trains in FP16: for models that are cast as a whole
    /// (apex O2, GNMT's own), not for those under autocast.
    pub half_gradients: bool,
    /// Units counted in the throughput (such as tokens) for each sample of a batch.
    pub counted_per_sample: f64,
    /// How gradients are exchanged, and other differences with several GPUs.
    pub way: MultiGpuBehavior,
}

/// The behavior of the program with several GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiGpuBehavior {
    /// All-reduces gradients.
    Exchange,
    /// The same, and each step waits for the input of the slowest GPU: one worker process for each
    /// GPU decodes audio, and a step first sums the loss over all GPUs (`num_workers=1` and
    /// `reduce_tensor` of Tacotron 2's `train.py`).
    ExchangeAndFeed,
    /// Nothing is exchanged: Transformer-XL requires `--multi_gpu ddp` for that, which the
    /// benchmark does not pass.
    Apart,
}

/// Facts about the programs that no available source states. They are fitted with the other values
/// (`analysis/evaluate/src/bin/fit_data_parallel`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unpublished {
    /// GNMT's throughput counts tokens of both languages: tokens in a pair of sentences.
    pub gnmt_tokens: f64,
    /// Milliseconds that a step of a program with [`MultiGpuBehavior::ExchangeAndFeed`] waits for each sample of
    /// each additional GPU.
    pub feeding_milliseconds: f64,
}

/// The fitted values.
pub const UNPUBLISHED: Unpublished =
    Unpublished { gnmt_tokens: GNMT_TOKENS, feeding_milliseconds: 1.1 };

const GNMT_TOKENS: f64 = 34.4;

/// All models. Parameters: torchvision's ResNet-50; SSD300 with NVIDIA's ResNet-50 trunk, counted
/// from its layers; BERT with a span head (Devlin et al. 2019: 110 and 340 million with the
/// pooler); GNMT v2 as counted in its training log; NeuMF on MovieLens-20M: 138,493 users and
/// 26,744 items with 64 and 128 numbers each, and its dense layers; Tacotron 2 and WaveGlow (512
/// channels) as in NVIDIA's implementations.
const ALL: [Benchmark; 10] = [
    exchanging("resnet50", 25.56e6, false, 1.0),
    exchanging("ssd", 22.9e6, false, 1.0),
    exchanging("bert_base_squad", 108.9e6, true, 1.0),
    exchanging("bert_large_squad", 334.1e6, true, 1.0),
    exchanging("gnmt", 159.6e6, true, GNMT_TOKENS),
    exchanging("ncf", 31.8e6, false, 1.0),
    // Counts frames of 256 samples at 22,050 Hz; a clip of LJSpeech is 6.57 s long on average.
    Benchmark {
        way: MultiGpuBehavior::ExchangeAndFeed,
        ..exchanging("tacotron2", 28.2e6, false, 566.0)
    },
    // Counts audio samples: `--segment-length 8000`.
    exchanging("waveglow", 268.0e6, false, 8_000.0),
    // Counts tokens: `--tgt_len`.
    Benchmark {
        way: MultiGpuBehavior::Apart,
        ..exchanging("transformerxlbase", 192e6, false, 192.0)
    },
    Benchmark {
        way: MultiGpuBehavior::Apart,
        ..exchanging("transformerxllarge", 247e6, false, 256.0)
    },
];

const fn exchanging(
    name: &'static str,
    parameters: f64,
    half_gradients: bool,
    counted_per_sample: f64,
) -> Benchmark {
    Benchmark {
        name,
        parameters,
        half_gradients,
        counted_per_sample,
        way: MultiGpuBehavior::Exchange,
    }
}

/// Returns the model with this name.
pub fn benchmark(name: &str) -> Option<&'static Benchmark> {
    ALL.iter().find(|one| one.name == name)
}

impl Benchmark {
    /// Milliseconds that a step waits for the input of each additional GPU, with batches of this
    /// size on each.
    pub fn feeding_milliseconds(&self, batch: f64, unpublished: &Unpublished) -> f64 {
        match self.way {
            MultiGpuBehavior::ExchangeAndFeed => unpublished.feeding_milliseconds * batch,
            MultiGpuBehavior::Exchange | MultiGpuBehavior::Apart => 0.0,
        }
    }

    /// Bytes of gradients that are all-reduced.
    pub fn gradient_bytes(&self, half: bool) -> f64 {
        match self.way {
            MultiGpuBehavior::Apart => 0.0,
            _ if half && self.half_gradients => 2.0 * self.parameters,
            _ => 4.0 * self.parameters,
        }
    }

    /// The ratio of counted to actual work: a part of an epoch is dropped, or steps are counted
    /// that did not run. `batch` is the total over all GPUs.
    pub fn counted(&self, batch: f64, gpus: u32) -> f64 {
        match self.name {
            // 19,861,770 training ratings and four times as many negatives per epoch. The last
            // batch is dropped, but all are counted (`ncf.py`, `dataloading.py`).
            "ncf" => {
                const EPOCH: f64 = 5.0 * 19_861_770.0;
                EPOCH / (batch * ((EPOCH / batch).ceil() - 1.0).max(1.0))
            }
            // SQuAD 1.1 has 88,641 sequences. With large batches, two epochs end before 100 steps,
            // but 100 are counted (`run_squad.py`).
            "bert_base_squad" | "bert_large_squad" => {
                const SEQUENCES: f64 = 88_641.0;
                const STEPS: f64 = 100.0;
                let gpus = f64::from(gpus.max(1));
                let steps = 2.0 * ((SEQUENCES / gpus).ceil() / (batch / gpus)).ceil();
                STEPS / steps.min(STEPS + 1.0)
            }
            _ => 1.0,
        }
    }

    /// Converts a throughput as counted by the program to milliseconds per step.
    pub fn step_milliseconds(&self, batch: f64, gpus: u32, per_second: f64) -> f64 {
        batch * self.counted_per_sample * self.counted(batch, gpus) / per_second * 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_counted_but_not_done() {
        let bert = benchmark("bert_base_squad").expect("it is there");
        assert_eq!(bert.counted(192.0, 1), 100.0 / 101.0);
        // 11,081 sequences on each GPU in batches of 320: 35 steps per epoch.
        assert_eq!(bert.counted(2_560.0, 8), 100.0 / 70.0);
        let ncf = benchmark("ncf").expect("it is there");
        assert!((ncf.counted(64e6, 8) - 99_308_850.0 / 64e6).abs() < 1e-12);
        assert_eq!(benchmark("ssd").map(|one| one.counted(8.0, 1)), Some(1.0));
    }

    #[test]
    fn gradient_bytes_depend_on_their_type() {
        let bytes = |name, half| benchmark(name).map(|one| one.gradient_bytes(half));
        assert_eq!(bytes("resnet50", true), Some(4.0 * 25.56e6));
        assert_eq!(bytes("bert_large_squad", true), Some(2.0 * 334.1e6));
        assert_eq!(bytes("bert_large_squad", false), Some(4.0 * 334.1e6));
        assert_eq!(bytes("transformerxlbase", false), Some(0.0));
    }
}
