# %% [markdown]
# # Digits
# Exported from a notebook.

# %%
import torch
import torch.nn as nn

BATCH_SIZE = 24
EPOCHS = 20

# %%
images = torch.rand(960, 1, 28, 28)
labels = torch.randint(10, (960,))
train_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images, labels), BATCH_SIZE, shuffle=True
)

# %%
model = nn.Sequential(
    nn.Conv2d(1, 16, 3),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(18432, 10),
)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())

# %%
for epoch in range(EPOCHS):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)  # top
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

# %% [markdown]
# ## Submission

# %%
predictions = model(images[:10]).argmax(dim=1)
print(predictions)
