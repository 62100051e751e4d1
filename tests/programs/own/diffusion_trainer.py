from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet

model = Unet(dim=16, dim_mults=(1, 2))
diffusion = GaussianDiffusion(model, image_size=32, timesteps=100)
trainer = Trainer(
    diffusion,
    "images",
    train_batch_size=8,
    train_num_steps=200,
    gradient_accumulate_every=2,
    num_samples=4,
    calculate_fid=False,
)
trainer.train()
